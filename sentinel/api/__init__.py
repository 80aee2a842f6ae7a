"""The wire between sentinel's programs: discovery, a small HTTP client, the shapes of requests."""
