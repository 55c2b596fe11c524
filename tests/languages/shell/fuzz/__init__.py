"""Hostile values in hundreds of shell contexts, on every shell of this machine: `make shellfuzz`."""
