"""Batch systems that are not installed here: scripts stand in for their commands."""
