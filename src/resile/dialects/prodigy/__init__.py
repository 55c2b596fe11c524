"""The front end of Prodigy's files."""
