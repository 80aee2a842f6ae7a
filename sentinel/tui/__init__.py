"""The dashboard in the terminal. It knows the daemon only by its API."""
