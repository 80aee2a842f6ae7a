"""Formats of checkpoints: which one is whole, and what it holds."""
