"""All that can be played, put together."""

from __future__ import annotations

from tests.money.model import lives
from tests.money.model.schedule import Play

PLAY = Play(acts=lives.ACTS, begin=lives.begin)
