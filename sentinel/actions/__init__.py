"""From a transition to a request that a job answers."""
