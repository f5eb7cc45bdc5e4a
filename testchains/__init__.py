"""Real chains on this machine, for the tests and for `sandboxer pay demo`: regtest nodes with a bank that
pays, a miner that obeys and a hand that reorganises.

Every chain has the same few verbs: `mine(n)`, `pay(address, atomic) -> txid`, `reorg(depth)`, and is a
context manager that ends its processes. Nothing here is shipped with the product.
"""
