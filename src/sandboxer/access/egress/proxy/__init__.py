"""The data plane: one connection from inside, one to the world, and what must hold between them."""
