"""The values that the texts and code of a step can use during a run, and the evaluation of both."""
