"""The acts that callers ask of sandboxes, one file for each group of them; `facade.py` holds them all."""
