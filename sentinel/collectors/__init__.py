"""Collectors measure: they neither judge nor store."""
