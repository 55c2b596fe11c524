"""Executors: they start, watch, kill and re-adopt attempts."""
