"""`make e2b-matrix`: tries every feature through several versions of E2B's clients, each installed in a
folder of its own outside of this tree, and writes what came of it into docs/guides/e2b.md.

Versions are tried by a domain alone, and by the pair of addresses where they know them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.e2b import Names, Tls, node_with, python_with, tls_platform
from tests.support.platforms import ROOT, why_not_real

GUIDE = ROOT / "docs" / "guides" / "e2b.md"
BEGIN, END = "<!-- matrix: make e2b-matrix -->\n", "<!-- end of matrix -->\n"
HERE = Path(__file__).parent
TIMEOUT_S = 300
Seen = Mapping[str, object]


@dataclass(frozen=True)
class Version:
    """A version of the SDK, and one of the code interpreter's that goes with it."""

    language: str
    sdk: str
    code: str
    # Older ones know no addresses, or do not say by them which sandbox they mean.
    knows_pair: bool = True

    @property
    def title(self) -> str:
        return f"{self.language} {self.sdk}"


VERSIONS = (
    Version("Python", "1.11.1", "1.5.2", knows_pair=False),
    Version("Python", "2.0.2", "2.0.0", knows_pair=False),
    Version("Python", "2.15.3", "2.4.1", knows_pair=False),
    Version("Python", "2.30.0", "2.7.0"),
    Version("Python", "2.45.1", "2.9.1"),
    Version("Python", "2.63.0", "2.11.5"),
    Version("JavaScript", "1.13.2", "1.5.1", knows_pair=False),
    Version("JavaScript", "2.8.4", "2.3.3", knows_pair=False),
    Version("JavaScript", "2.30.5", "2.6.1"),
    Version("JavaScript", "2.51.0", "2.8.0"),
)


def main() -> int:
    if why := why_not_real():
        sys.exit(why)
    seen: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory(prefix="e2b-matrix-", dir="/var/tmp") as folder:
        for title, found in try_all(Path(folder), VERSIONS):
            seen[title] = found
            wrong = {name: said for name, said in found.items() if isinstance(said, str)}
            print(f"{title}: {sum(said is True for said in found.values())} of {len(found)} {wrong or ''}")
    text = GUIDE.read_text()
    before, _, rest = text.partition(BEGIN)
    GUIDE.write_text(before + BEGIN + table(seen) + END + rest.partition(END)[2])
    return 0


def try_all(folder: Path, versions: Sequence[Version]) -> Iterator[tuple[str, Seen]]:
    """Yields what came of every version, by a domain and by the pair of addresses."""
    names = Names(folder)
    with tls_platform(folder / "state", pool_mb=6144) as edge:
        for version in versions:
            command = installed(version)
            yield f"{version.title}", _run(names.command(command), edge.environment)
            if version.knows_pair:
                yield f"{version.title}, addresses", _run(command, _pair(edge))
    names.close()


def _pair(edge: Tls) -> dict[str, str]:
    plain = {name: value for name, value in edge.environment.items() if name != "E2B_DOMAIN"}
    where = {"E2B_API_URL": f"{edge.up.url}/e2b", "E2B_SANDBOX_URL": f"{edge.up.url}/e2b/envd"}
    return plain | where | {"NO_PROXY": "127.0.0.1"}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> Seen:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        return {"create, look, list, end": done.stderr.strip().rpartition("\n")[2][:400]}
    found: Seen = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def installed(version: Version) -> list[str]:
    """Returns the command that tries one version, installed if it is not yet."""
    if version.language == "Python":
        python = python_with(f"e2b=={version.sdk}", f"e2b-code-interpreter=={version.code}")
        return [python, str(HERE / "features.py")]
    modules = node_with(f"e2b@{version.sdk}", f"@e2b/code-interpreter@{version.code}")
    # Beside its modules: a program in node finds them there alone.
    return ["node", shutil.copy(HERE / "node/features.mjs", modules)]


def table(seen: Mapping[str, Seen]) -> str:
    """Returns features by versions: a tick, a dash where a version has no such thing, or a cross."""
    features = list(dict.fromkeys(name for found in seen.values() for name in found))
    lines = [f"| | {' | '.join(seen)} |", f"|---{'|:-:' * len(seen)}|"]
    for name in features:
        cells = [_mark(found.get(name)) for found in seen.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mark(said: object) -> str:
    return "✓" if said is True else "–" if said in (False, None) else "✗"


if __name__ == "__main__":
    sys.exit(main())
