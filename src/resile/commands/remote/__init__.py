"""The commands on a server: the same methods as those on a database, over HTTP."""
