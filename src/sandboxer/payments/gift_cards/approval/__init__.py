"""Redemptions that somebody must approve: the link, how it is told, and what happens if nobody answers."""
