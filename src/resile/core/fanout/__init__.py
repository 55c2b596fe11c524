"""Scopes inside a run: the items of a map, child workflows, redrives of dead letters."""
