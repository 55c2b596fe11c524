"""The edges between the steps of a scope: needs, arcs, list order, and the steps that others name."""
