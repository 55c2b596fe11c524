"""File formats with positions: YAML, JSON5 and KDL become one kind of tree."""
