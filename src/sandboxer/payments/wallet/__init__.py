"""An agent's wallet: it is encrypted on disk and spends only within caps."""
