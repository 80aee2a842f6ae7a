"""Series for others: the Prometheus text format."""
