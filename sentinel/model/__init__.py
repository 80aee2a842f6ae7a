"""The nouns: frozen dataclasses with units in their names. Standard library only."""
