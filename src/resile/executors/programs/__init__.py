"""Small programs that an attempt runs as a separate process; most import nothing of the package."""
