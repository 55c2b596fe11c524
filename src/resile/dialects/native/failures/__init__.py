"""What a native file says about failures, compiled to the rules of the ladder."""
