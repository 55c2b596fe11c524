"""Streams to clients: the events of runs, and the output of attempts, as they come."""
