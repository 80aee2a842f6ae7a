"""Tailing files, recognising what a line means, masking secrets."""
