"""The imperative shell: it drives the core, performs its orders and feeds back what the world answers."""
