"""One process that drives many runs."""
