"""The side of a node: goes there as one file (archive.py), and needs nothing but Python."""
