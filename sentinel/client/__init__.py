"""What a job imports: standard library only, silent without a daemon."""
