"""What the command line shows: progress, summaries, problems, colors."""
