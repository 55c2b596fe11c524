"""Fingerprints: the file contents and environment variables that the results of a step depend on."""
