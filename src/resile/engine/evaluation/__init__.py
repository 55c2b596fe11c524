"""What texts and code of a step can see while a run goes on, and their evaluation."""
