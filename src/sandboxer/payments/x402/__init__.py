"""x402: an agent pays in the request itself. What is taken, on which chain, and how it becomes credit."""
