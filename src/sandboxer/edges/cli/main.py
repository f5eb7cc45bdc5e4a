"""The `sandboxer` command: loads only the verb that is run, and turns errors into words and exit codes."""

from __future__ import annotations

import os
import sys

import typer

from sandboxer.edges.cli.exits import Exit, exit_of
from sandboxer.edges.cli.output import print_error
from sandboxer.edges.cli.verbs import root_command


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """One command line; returns the exit code. Never a traceback for anything a user can cause."""
    try:
        result = root_command().main(args=words, prog_name="sandboxer", standalone_mode=False)
        return int(result) if isinstance(result, int) else Exit.OK
    except typer.Exit as left:
        return left.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`); nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.ERROR
    except Exception as error:
        return _explain(error, is_json=wants_json(words))


def _explain(error: Exception, *, is_json: bool) -> int:
    show = getattr(error, "show", None)
    if show is not None:
        # A usage error of the command line parser: it prints itself.
        show()
        return int(getattr(error, "exit_code", Exit.USAGE))
    print_error(error, is_json=is_json)
    return exit_of(error)


def wants_json(words: list[str]) -> bool:
    ours = words[: words.index("--")] if "--" in words else words
    return "--json" in ours


if __name__ == "__main__":
    main()
