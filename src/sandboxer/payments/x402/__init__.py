"""x402 lets an agent pay in the request itself: what is accepted where, and how it becomes credit."""
