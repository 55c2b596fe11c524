"""Step types in the engine: a module for each prepares its attempts; `registry` finds the module."""
