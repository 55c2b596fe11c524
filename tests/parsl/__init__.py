"""Attempts on blocks of nodes: on this machine, and on a Slurm of several nodes."""
