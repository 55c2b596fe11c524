"""What the steps of a run used: measured, suggested, drawn, learned."""
