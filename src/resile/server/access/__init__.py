"""Who may: tokens and their roles, and where a request may come from."""
