"""Alembic's folder: `env.py` runs inside `sandboxer.store.migrate`, steps live in `versions/`.

The first step is a baseline: the schema as all steps before it left it, one file of statements for each kind
of database. Those steps are gone; a database that is older passes through a program that has them.
"""

from __future__ import annotations

from importlib.resources import files

BASELINE = "0035"
# The last program that brings an older database to the baseline.
PASS_THROUGH = "of commit 314a709"


def statements(kind: str) -> list[str]:
    """Returns the statements that make the baseline in an empty database of this kind (`sqlite`,
    `postgresql`).
    """
    text = files(__name__).joinpath(f"baseline-{kind}.sql").read_text()
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("--")]
    return [one for one in "".join(lines).split(";\n") if one.strip()]
