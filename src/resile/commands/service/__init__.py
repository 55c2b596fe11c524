"""What servers and their callers need: runs that are handed over and followed, jobs one by one, tokens."""
