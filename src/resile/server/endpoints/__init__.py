"""The endpoints of the API, one module for each subject; each has a table of its routes."""
