"""`sandboxer pay demo`: an agent with nothing but a wallet, on chains and a platform of this machine."""
