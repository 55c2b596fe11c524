"""The Python surface: functions as steps, workflows made of calls, and runs of them from a program."""
