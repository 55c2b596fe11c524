"""The failure settings of a native file, compiled to rules."""
