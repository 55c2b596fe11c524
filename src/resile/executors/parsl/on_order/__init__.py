"""Blocks that come when the core orders them: the executor, its pools, and what they ask of a batch system."""
