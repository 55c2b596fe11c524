"""The names of events: Resile's own, and those of other systems."""
