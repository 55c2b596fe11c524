"""Scopes inside a run: the items of a map, child workflows, dead letters run again."""
