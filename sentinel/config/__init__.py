"""Settings: one frozen class per room, one file, every problem at once."""

from sentinel.config.reading import load, read
from sentinel.config.settings import Adoption, Settings

__all__ = ["Adoption", "Settings", "load", "read"]
