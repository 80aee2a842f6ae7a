"""YAML with the line and column of every value."""
