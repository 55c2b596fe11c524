"""Shell commands with values in them: every value is quoted for the place where it stands."""
