"""The resources that the steps of a run used: measured, drawn, and used to suggest or learn requests."""
