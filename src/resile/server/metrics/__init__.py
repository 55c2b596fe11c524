"""Counts what a server does, and writes the counts in the format of Prometheus."""
