"""Small programs that an attempt runs as a process of its own: nothing of the package is imported here."""
