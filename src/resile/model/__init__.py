"""The frozen intermediate model that every front end produces and that the core alone interprets."""
