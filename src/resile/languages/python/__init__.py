"""Python in workflows: functions found by name, and values that processes exchange."""
