"""The tools of a playbook: each kind, with its keys, becomes an action."""
