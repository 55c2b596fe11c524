"""What values can and cannot do in a run."""
