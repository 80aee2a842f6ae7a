"""The daemon: assembly, pipeline, lifecycle."""
