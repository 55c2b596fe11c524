"""What the results of a step depend on: the contents of files, and variables of the environment."""
