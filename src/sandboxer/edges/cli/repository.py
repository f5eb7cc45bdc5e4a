"""What `create --input repo=FOLDER` brings into a sandbox: a folder of this machine, without what git
ignores in it. A link that leads out of it would be another one inside, and is refused.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandboxer.edges.cli.cp import copy_folder_in, leads_out
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.sdk.sync.sandbox import Sandbox

# Brings up the compose file in the workspace of what it makes.
_WITH_STACK = "ext.compose-ssh"
# So many are named to people.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Brought:
    """What of a folder of this machine is brought into a sandbox."""

    folder: Path
    names: Sequence[str]

    def into(self, sandbox: Sandbox, path: str) -> None:
        """Copies it into a sandbox that nobody knows yet, and brings up the stack that lies in it; without
        them the sandbox is of no use, and is removed.
        """
        try:
            copy_folder_in(sandbox, self.folder, path, self.names)
            if sandbox.info.backend == _WITH_STACK:
                # It is brought up when the sandbox starts.
                sandbox.stop()
                sandbox.resume()
        except BaseException:
            sandbox.destroy()
            raise


def contents(folder: Path) -> list[str]:
    """Returns what is brought, relative to the folder, each folder before what is in it. Raises
    CommandFailed.
    """
    names = _unignored(folder)
    if names is None:
        found = set(_below(folder, "."))
    else:
        found = {inner for name in names for inner in (name, *_below(folder, name))}
        # With its history; of a work tree of another repository, and of a part of one, that is elsewhere.
        if (folder / ".git").is_dir():
            found |= {".git", *_below(folder, ".git")}
    found |= {str(above) for name in found for above in PurePosixPath(name).parents}
    _demand_inside(folder, found)
    return sorted(found - {"."})


def _unignored(folder: Path) -> list[str] | None:
    """Returns what git does not ignore, whether it knows it yet or not; None where there is no repository."""
    words = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        said = subprocess.run(words, capture_output=True, check=False)
    except FileNotFoundError:
        failure = "git is not installed here"
    else:
        if said.returncode == 0:
            names = map(os.fsdecode, filter(None, said.stdout.split(b"\0")))
            # What was removed and not yet committed is known to git, and not there.
            return [name.rstrip("/") for name in names if os.path.lexists(folder / name)]
        failure = os.fsdecode(said.stderr).strip()
    if not (folder / ".git").exists():
        return None
    raise CommandFailed(
        f"{folder} is a repository, and git does not say what is in it: {failure}",
        next_step="Mend that, or name a folder that is none.",
    )


def _below(folder: Path, name: str) -> Iterable[str]:
    """Yields what is below this, if it is a folder and no link."""
    if (folder / name).is_symlink():
        return
    for top, folders, files in os.walk(folder / name):
        for one in (*folders, *files):
            yield Path(top, one).relative_to(folder).as_posix()


def _demand_inside(folder: Path, names: Iterable[str]) -> None:
    links = [name for name in sorted(names) if (folder / name).is_symlink()]
    out = [name for name in links if leads_out(name.split("/")[:-1], os.readlink(folder / name))]
    if out:
        more = f" and {len(out) - _NAMED} more" if len(out) > _NAMED else ""
        raise CommandFailed(
            f"Links lead out of {folder}, where a sandbox has something else or nothing:"
            f" {', '.join(out[:_NAMED])}{more}.",
            next_step="Replace them by what they lead to, or let git ignore them.",
        )
