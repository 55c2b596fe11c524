"""Commands about files that need no database: a first workflow, the schema."""
