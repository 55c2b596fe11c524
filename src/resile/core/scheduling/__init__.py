"""Decides which job runs when: dependencies, arcs, resources, goto, and the end of a run."""
