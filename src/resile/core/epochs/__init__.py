"""Begins a run, and begins it again: whole, what failed, what changed, or what a recovery answers."""
