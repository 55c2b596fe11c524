"""The front end of Visor's files."""
