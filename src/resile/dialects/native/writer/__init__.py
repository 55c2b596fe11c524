"""The model written as a native file: what `resile migrate` prints."""
