"""Step types under `ir`, which only files of other systems use."""
