"""One small module per command, imported when it runs."""
