"""Settings: one frozen class per room, one file, every problem at once."""
