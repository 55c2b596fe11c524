"""Handles a request before an endpoint gets it: limits its size, parses it, and carries out no call twice."""
