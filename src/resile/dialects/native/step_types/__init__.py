"""The step types of the native file: one module each says how its action is written."""
