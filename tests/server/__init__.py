"""The server: a real process on loopback with a real database."""
