"""Shell commands with values in them: every value is quoted for its position."""
