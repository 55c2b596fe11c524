"""The front end of NoETL's playbooks."""
