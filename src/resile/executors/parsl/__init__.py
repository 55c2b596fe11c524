"""Attempts on blocks of nodes that Parsl starts: on this machine, by Slurm, and by others."""
