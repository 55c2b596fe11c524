"""Tools for agents, by the Model Context Protocol."""
