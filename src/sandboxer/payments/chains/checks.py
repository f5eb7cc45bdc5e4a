"""Is a node of the chain and network that the settings name, and does it know the newest blocks? Pure."""

from __future__ import annotations

from datetime import timedelta

from sandboxer.payments.chains.addresses import MAINNET, Network

# Blocks come every minute to every ten; six hours without one happen to nobody who is connected.
OLDEST_TIP = timedelta(hours=6)
# Headers come before their blocks, so a node in step may lack one or two for a moment.
MOST_BEHIND = 3
# One look at one address. Slower ones leave no time for all that are watched.
LOOKUP_LIMIT = timedelta(seconds=4)
SLOW = f"a look-up of one address took longer than {LOOKUP_LIMIT.total_seconds():.0f} s"


def why_another(network: Network, genesis: str) -> str | None:
    """The first block tells coins and networks apart, also where their addresses look the same."""
    if genesis in network.genesis:
        return None
    return f"its node is not of {network.coin} {network.name}: its first block is {genesis[:16]}…"


def why_behind(network: Network, *, blocks: int, headers: int, is_reading: bool) -> str | None:
    """`is_reading`: the node itself says that it has not caught up. A test network that stands still says so
    for ever, so there only the numbers count."""
    if headers - blocks > MOST_BEHIND:
        return f"its node is not synchronised: {blocks} of {headers} blocks"
    if is_reading and network.name == MAINNET:
        return f"its node is not synchronised: it is still at block {blocks}"
    return None


def why_stale(network: Network, *, tip_time: int, now: float) -> str | None:
    """`tip_time`, `now`: unix seconds. A server that lost its peers shows an old chain as if it were all."""
    age = timedelta(seconds=now - tip_time)
    if network.name != MAINNET or age <= OLDEST_TIP:
        return None
    return f"its node is not synchronised: its newest block is {age.total_seconds() / 3600:.0f} hours old"
