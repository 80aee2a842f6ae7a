"""Sentinel keeps long AI jobs from crashing and from wasting GPU hours."""

__version__ = "0.1.0"
