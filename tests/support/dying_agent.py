"""A program that runs the file of a run and ends itself with SIGKILL: once at each moment of what it pays by,
and of how it comes to its key. Which moments there were is in a file beside that of the run.

    python -m tests.support.dying_agent FOLDER URL [NODE USER]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandboxer.edges.cli.agent_wallets import OwnCoins
from sandboxer.sdk.agent import loop, outside
from sandboxer.sdk.agent.line import Reply
from sandboxer.sdk.agent.payment import Signed
from sandboxer.sdk.agent.progress import Progress, Step
from sandboxer.sdk.credentials import Credentials
from tests.support.agent_payers import Node, opened_by
from tests.support.agent_runs import lying

MOMENTS = "moments"
DEADLY = frozenset(
    {Step.CREATE_INVOICE, Step.SEND_PAYMENT, Step.POLL_CONFIRMATION, Step.RECEIVE_KEYS, Step.INSTALL_TOOLS}
)
# What is shown once and lost here is lost; `test_agent_layers.py` says what happens then.
SPARED = "receive_keys: heard POST /v1/keys"


@dataclass
class Deaths:
    file: Path
    step: Step = Step.INSIDE_SANDBOX

    def at(self, moment: str) -> None:
        """Ends this process, unless one ended here before."""
        name = f"{self.step.value}: {moment}"
        known = self.file.read_text().splitlines() if self.file.exists() else []
        if self.step not in DEADLY or name in known or name == SPARED:
            return
        self.file.write_text("\n".join([*known, name]))
        os.kill(os.getpid(), signal.SIGKILL)

    def written(self, known: Progress) -> None:
        self.step = known.step
        self.at(f"wrote {known.events[-1].what.split(' ')[0] if known.events else ''}")

    def bend(self, method: str, target: str, send: Callable[[], Reply]) -> Reply:
        what = f"{method} {'/'.join(target.partition('?')[0].split('/')[:3])}"
        self.at(f"asks {what}")
        reply = send()
        self.at(f"heard {what}")
        return reply


@dataclass
class DyingCoins:
    coins: OwnCoins
    deaths: Deaths

    def prepare(self, address: str, atomic: int) -> Signed:
        self.deaths.at("signs")
        signed = self.coins.prepare(address, atomic)
        self.deaths.at("signed")
        return signed

    def broadcast(self, signed: Signed) -> None:
        self.deaths.at("broadcasts")
        self.coins.broadcast(signed)
        self.deaths.at("broadcast it")


def main(folder: Path, url: str, *node: str) -> None:
    deaths = Deaths(folder / MOMENTS)
    nobody = Credentials("", "", url)
    coins = DyingCoins(opened_by(folder, Node(*node)), deaths) if node else None
    around = lying(outside.surroundings(nobody, coins=coins), nobody, deaths.bend)
    file = loop.StateFile(folder / "run.json")
    with file.alone():
        known = file.read()
        assert known is not None
        deaths.step = known.step
        ended = loop.run(file, known, around, watch=deaths.written)
    sys.exit(0 if ended.end is not None else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
