"""The terminal dashboard. It knows only the API."""
