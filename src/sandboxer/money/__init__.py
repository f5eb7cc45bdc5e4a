"""One ledger in integer sats, meters that are functions of time, holds, pricing, statements.

Everything that happens in a transaction is a plain function `f(conn, …, now=…)`, so that upper packages can
compose it with their own writes. How balances and rounding work: decision 0009.
"""
