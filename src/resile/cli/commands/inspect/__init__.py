"""Commands that show a run: its status, its output, its explanation, its graph and its statistics."""
