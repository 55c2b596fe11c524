"""Blocks that the core orders: the executor, its pools, and the shapes of blocks that they ask a batch system for."""
