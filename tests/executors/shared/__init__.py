"""The executor of one run in a server that many share."""
