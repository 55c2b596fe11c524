"""Failed runs: why they failed, what is granted, and what runs again."""
