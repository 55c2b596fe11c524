"""The programs for nodes: they go there as one file (archive.py), and need nothing but Python."""
