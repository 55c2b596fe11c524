"""Commands for servers and their callers: hand a run over, follow it, describe its jobs, manage tokens."""
