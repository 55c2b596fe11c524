"""Samples of what running attempts use, where a file asks for them."""
