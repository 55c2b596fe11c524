"""The native file: the only front end that builds the model. `keys` has its tables, `writer` writes it."""
