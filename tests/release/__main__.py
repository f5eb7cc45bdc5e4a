"""`python -m tests.release` freezes what the platform answers today: the next change is held against it.

What `/v1` promised before must be kept; otherwise nothing is written.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from datetime import date
from pathlib import Path

from tests.release.frozen import (
    ANSWERS,
    CODES,
    DOCUMENT,
    answers_of,
    codes,
    document,
    written,
    written_document,
)
from tests.release.matrix import opened
from tests.release.promise import broken


def refuse_what_breaks_a_promise() -> None:
    lost = broken(json.loads(DOCUMENT.read_text()), document(), date.today())
    now = codes()
    lost += [
        f"error code {code}: {status} is now {now.get(code)}"
        for code, status in json.loads(CODES.read_text()).items()
        if now.get(code) != status
    ]
    if lost:
        sys.exit(
            "Not frozen: /v1 grows only by addition (docs/reference/compatibility.md).\n" + "\n".join(lost)
        )


async def freeze() -> None:
    with tempfile.TemporaryDirectory() as state:
        async with opened(Path(state) / "state") as served:
            answers = await answers_of(served)
    DOCUMENT.write_text(written_document(document()))
    ANSWERS.write_text(written(answers))
    CODES.write_text(json.dumps(codes(), indent=1) + "\n")
    print(f"{len(answers)} operations, {sum(map(len, answers.values()))} answers")


refuse_what_breaks_a_promise()
asyncio.run(freeze())
