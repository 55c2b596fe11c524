"""Only what must run again: `rerun --changed` and `run --cached`."""
