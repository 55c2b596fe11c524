"""What attempts used: samples, suggestions, plots, and memory that is learned."""
