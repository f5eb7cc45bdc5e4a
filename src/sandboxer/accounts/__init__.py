"""What an account may do: records, entitlements, delegated keys and their budgets, limits, caps, audit.

Everything that happens in a transaction is a plain function `f(conn, …, now=…)`; decisions are pure.
"""
