"""Durable storage: an append-only log of each run, and the tables that the surfaces query."""
