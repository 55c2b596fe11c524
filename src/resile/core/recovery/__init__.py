"""Recovery from failures: matching rules, backoff, repairs."""
