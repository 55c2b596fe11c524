"""What clusters have of runs: their allocations."""
