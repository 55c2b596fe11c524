"""Runs of only what changed: `rerun --changed`, `run --cached`."""
