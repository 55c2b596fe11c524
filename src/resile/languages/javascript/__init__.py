"""Evaluates the JavaScript of workflow files in a process without access to anything, which can be killed anytime."""
