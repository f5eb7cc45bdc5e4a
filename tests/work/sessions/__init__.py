"""Sessions: decisions, hostile words, and their life beside their sandbox."""
