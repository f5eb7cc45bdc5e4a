"""Holds what every package shares: errors, ids, clocks, budgets. It uses no third-party library."""
