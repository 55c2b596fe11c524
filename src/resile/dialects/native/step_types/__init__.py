"""The step types of the native file: one module each, with the writer of its action."""
