"""One chain of each kind for the whole run, started by the first test that asks for it.

Tests share them: take addresses of your own, compare with what was there before, and leave no blocks unmined
that another test could trip over.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testchains import litecoin as litecoin_chain
from testchains import monero as monero_chain
from testchains.bitcoin.chain import Bitcoin, Dogecoin
from testchains.litecoin import Litecoin
from testchains.monero import Monero


@pytest.fixture(scope="session")
def litecoin() -> Iterator[Litecoin]:
    if why := litecoin_chain.why_not():
        pytest.skip(why)
    with Litecoin() as node:
        yield node


@pytest.fixture(scope="session")
def monero() -> Iterator[Monero]:
    if why := monero_chain.why_not():
        pytest.skip(why)
    with Monero() as node:
        yield node


@pytest.fixture(scope="session")
def bitcoin() -> Iterator[Bitcoin]:
    with Bitcoin() as node:
        yield node


@pytest.fixture(scope="session")
def dogecoin() -> Iterator[Dogecoin]:
    """A stand-in: see its class for what it does not prove."""
    with Dogecoin() as node:
        yield node
