"""What a run's log tells about it: why each failure ended as it did."""
