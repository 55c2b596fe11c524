"""The edges between the steps of a scope: needs, arcs, list order, and references by name."""
