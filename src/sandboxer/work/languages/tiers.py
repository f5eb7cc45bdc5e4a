"""Which image brings a language: several that build in a minute or two, besides `languages`, which has all.

A recipe `images/NAME.yaml` stands behind every name here; a test keeps them in step.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

BASE = "base"
# Everything of all tiers.
ALL = "languages"
TIERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "shells": ("zsh", "ksh", "mksh", "yash", "ash", "fish", "tcsh", "csh", "elvish", "xonsh"),
        "scripting": (
            *("typescript", "deno", "coffeescript", "livescript", "ruby", "raku", "php", "lua", "luajit"),
            *("tcl", "awk", "pike", "rexx", "basic", "slang"),
        ),
        "science": ("r", "octave"),
        "systems": ("go", "rust", "zig"),
        "compiled": (
            *("objc", "d", "nim", "crystal", "fortran", "cobol", "pascal", "ada", "vala", "assembly"),
        ),
        "jvm": ("java", "kotlin", "scala", "clojure", "groovy"),
        "functional": ("haskell", "ocaml", "sml", "erlang", "elixir"),
        "lisps": ("scheme", "racket", "commonlisp", "clisp", "newlisp", "picolisp", "elisp"),
        "assorted": ("prolog", "forth", "csharp", "haxe", "icon", "algol68"),
    }
)
_TIER_OF = MappingProxyType({name: tier for tier, names in TIERS.items() for name in names})


def tier_of(language: str) -> str | None:
    """None: it is in every image."""
    return _TIER_OF.get(language)
