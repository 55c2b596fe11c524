"""What is sent while it happens: events of runs, and the output of attempts."""
