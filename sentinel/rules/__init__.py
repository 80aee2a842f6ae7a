"""Rule files, their evaluation, and the state machine of alerts."""
