"""`resile worker`: runs attempts that servers give it, with the same launcher as the engine."""
