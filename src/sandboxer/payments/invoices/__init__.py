"""An invoice asks for an exact amount at an address of its own, and settles whatever arrives there."""
