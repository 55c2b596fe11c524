"""Requests before they reach an endpoint: read as their declared types, and carried out once."""
