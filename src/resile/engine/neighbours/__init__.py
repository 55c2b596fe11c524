"""The lease that keeps other processes from driving a run, and their requests to its engine."""
