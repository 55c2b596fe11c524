"""Recovery of failed runs: diagnosis, plan, rounds."""
