"""The same API on real walls: what a fake cannot show."""
