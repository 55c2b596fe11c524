"""The front end of Torc's files."""
