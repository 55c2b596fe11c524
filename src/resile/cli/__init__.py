"""The command line: it parses the words, calls one command, and prints text or one JSON document."""
