"""The executor of local processes: the engine's side; `launcher` is the process that starts them."""
