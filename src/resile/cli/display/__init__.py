"""The output of the command line: progress, summaries, problems, colors."""
