"""The window in memory, the database behind it, the journal beside it."""
