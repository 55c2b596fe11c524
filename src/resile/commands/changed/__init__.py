"""`rerun --changed` and `run --cached`: run only the steps that must run again."""
