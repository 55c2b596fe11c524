"""Front ends: text in, the frozen model and a list of findings with positions out. Nothing here runs anything."""
