"""The imperative shell: it feeds events to the core, performs the core's orders and reports their results as events."""
