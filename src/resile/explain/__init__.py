"""Explains a run from its log: why each failure ended as it did."""
