"""Jinja templates, as NoETL's playbooks use them."""
