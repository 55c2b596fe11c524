"""The commands on the database itself."""
