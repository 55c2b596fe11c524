"""The front end of workflows written in Python: it loads a file and compiles the one workflow that the file builds."""
