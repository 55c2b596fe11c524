"""The world of processes: start, watch, kill and re-adopt attempts."""
