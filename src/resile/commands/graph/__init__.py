"""`resile graph`: the steps of a file or a run as a graph, in several formats."""
