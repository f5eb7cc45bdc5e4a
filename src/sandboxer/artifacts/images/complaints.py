"""Why a build failed, in words an operator can act on. Pure: the tail of the output comes in."""

from __future__ import annotations

import re

from sandboxer.artifacts.images.mirrors import Mirrors

_UNREACHABLE = re.compile(
    r"Temporary failure resolving|Could not resolve|Could not connect|Connection (?:timed out|refused|failed)"
    r"|Network is unreachable|Unable to connect"
)
_UNKNOWN_PACKAGE = re.compile(r"Unable to locate package (\S+)|Package (\S+) has no installation candidate")
_UNSIGNED = re.compile(r"NO_PUBKEY|is not signed|signatures couldn't be verified")
_PASSWORD = re.compile(r"//[^/@]*@")
_SHOWN = 6


def explain(tail: list[str], mirrors: Mirrors) -> str:
    text = "\n".join(tail)
    uris = (_PASSWORD.sub("//", source.uri) for source in mirrors.building)
    hosts = ", ".join(dict.fromkeys(uris))
    if "No space left on device" in text:
        return "the disk is full; free some space and build again"
    if _UNREACHABLE.search(text):
        return f"no network: cannot reach the package mirrors ({hosts}); check /etc/apt and the network"
    if unknown := _UNKNOWN_PACKAGE.search(text):
        package = unknown[1] or unknown[2]
        return f"{mirrors.distribution} {mirrors.suite} has no package {package}; correct the recipe"
    if _UNSIGNED.search(text):
        return (
            f"the mirror's signature cannot be checked; "
            f"install {mirrors.distribution}-archive-keyring (Ubuntu: ubuntu-keyring)"
        )
    last = [line for line in tail if line.strip()][-_SHOWN:]
    return "mmdebstrap failed; its last words: " + " | ".join(last)
