"""Liquid templates, as Visor's files use them."""
