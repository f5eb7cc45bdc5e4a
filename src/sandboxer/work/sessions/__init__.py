"""Sessions are stateful interpreters: what one cell sets, the next one finds."""
