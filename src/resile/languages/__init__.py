"""Text and code inside workflows: template languages, shell quoting and JavaScript."""
