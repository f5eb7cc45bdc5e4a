"""The HTTP edge translates requests into use cases and their results into answers. It decides nothing."""
