"""The commands that serve a database, hand runs to its servers, and say who may call them."""
