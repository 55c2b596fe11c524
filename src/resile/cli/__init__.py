"""The command line: words in, a call of one verb, text or one JSON document out."""
