"""What happens before a run starts: which steps and inputs it has, and what a caller should know."""
