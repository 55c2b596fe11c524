"""The launcher: a lean process that starts attempts, watches them and outlives the engine."""
