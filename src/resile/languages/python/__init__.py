"""Python in workflows: functions found by their names, and values that travel between processes."""
