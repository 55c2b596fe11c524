"""The allocations that clusters hold for runs."""
