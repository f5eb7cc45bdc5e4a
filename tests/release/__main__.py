"""`python -m tests.release` freezes what the platform answers today: the next change is held against it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.release.frozen import ANSWERS, DOCUMENT, answers_of, document_of, written, written_document
from tests.release.matrix import opened


async def freeze() -> None:
    with tempfile.TemporaryDirectory() as state:
        async with opened(Path(state) / "state") as served:
            document = document_of(served)
            answers = await answers_of(served)
    DOCUMENT.write_text(written_document(document))
    ANSWERS.write_text(written(answers))
    print(f"{len(answers)} operations, {sum(map(len, answers.values()))} answers")


asyncio.run(freeze())
