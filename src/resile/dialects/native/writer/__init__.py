"""Writes the model as a native file, for `resile migrate`."""
