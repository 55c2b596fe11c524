"""What answers a failure: matching rules, backoff, repairs."""
