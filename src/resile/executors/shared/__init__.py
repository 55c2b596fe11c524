"""One executor for many runs: places that run attempts, and a view for each run."""
