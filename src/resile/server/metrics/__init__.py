"""What a server counts, and how it tells Prometheus."""
