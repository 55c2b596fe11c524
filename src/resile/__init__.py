"""Resile: a workflow engine whose subject is failure."""

__version__ = "0.1.0"
