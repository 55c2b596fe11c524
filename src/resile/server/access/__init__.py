"""Decides whether the server accepts a request: by its token and role, and by its host and origin."""
