"""The commands about clusters: `slurm status` and `slurm cancel` show and end the allocations of runs."""
