"""What a run may use, and what becomes of a step that would use more."""
