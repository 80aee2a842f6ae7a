"""From a transition to a message that a person reads."""
