"""The executor of Python functions: warm worker processes, or threads."""
