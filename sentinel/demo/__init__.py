"""A night in forty seconds, with real child processes."""
