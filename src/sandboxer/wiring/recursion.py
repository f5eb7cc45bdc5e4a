"""The interpreter's recursion limit, which keeps what callers send from ending the process.

JSON that is nested deeper than the limit is an error. Without it, it runs over the end of the stack and takes
the whole server with it. `py_ecc`, which the Ethereum libraries bring along, raises the limit to 100,000 when
it is imported: at that, one request of 100 KB of `[` ends the process.
"""

from __future__ import annotations

import contextlib
import importlib
import sys

# Python's own. The stack of a thread has room for about thirty times as much.
LIMIT = 1000


def hold_recursion() -> None:
    """Set the limit back, once that library is there: a module raises it only when it is first imported."""
    with contextlib.suppress(ImportError):
        importlib.import_module("py_ecc")
    sys.setrecursionlimit(LIMIT)
