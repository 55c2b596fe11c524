"""What other processes have to do with the engine of a run: its lease, and their requests."""
