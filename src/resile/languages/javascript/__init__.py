"""JavaScript from workflow files, evaluated in a process that can't touch anything and can be killed at any time."""
