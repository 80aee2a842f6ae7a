"""The HTTP API on a Unix socket."""
