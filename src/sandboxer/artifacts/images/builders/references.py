"""References to images in registries: `python:3.12`, `ghcr.io/who/what:1`, `docker://host/name@sha256:…`.

What somebody types is completed by the operator's default registry and by nothing else, and is shown in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sandboxer.kernel.errors import (
    Forbidden,
    ImageBuildFailed,
    InvalidRequest,
    NotFound,
    SandboxerError,
    TooLarge,
    Unavailable,
)
from sandboxer.kernel.values import value_class

TRANSPORT = "docker://"
_DOCKER_HUB = "docker.io"
_HOST = r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<path>{_PART}(?:/{_PART})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?"
)
_REGISTRY = re.compile(_HOST)


@value_class
class Reference:
    # With its port, if it names one.
    registry: str
    path: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return f"{TRANSPORT}{self.registry}/{self.path}{self._tagged}{self._pinned}"

    @property
    def named(self) -> str:
        """Returns it without the digest, as a later request for the same name asks for it."""
        return f"{TRANSPORT}{self.registry}/{self.path}{self._tagged}"

    @property
    def exact(self) -> str:
        """Returns it as Skopeo takes it: one that has a digest may have no tag."""
        return f"{TRANSPORT}{self.registry}/{self.path}{self._pinned or self._tagged}"

    @property
    def _tagged(self) -> str:
        return f":{self.tag}" if self.tag else ""

    @property
    def _pinned(self) -> str:
        return f"@{self.digest}" if self.digest else ""


def is_reference(image: str) -> bool:
    """Tells a reference from the name of a base image and from an id, which have neither `:` nor `/`."""
    return ":" in image or "/" in image


def parse_reference(text: str, default_registry: str) -> Reference:
    """Completes a reference. `python:3.12` and `who/what` are the default registry's. Raises
    InvalidRequest.
    """
    short = text.removeprefix(TRANSPORT)
    first, _, rest = short.partition("/")
    is_host = bool(rest) and ("." in first or ":" in first or first == "localhost")
    registry, path = (first, rest) if is_host else (default_registry, short)
    if (found := _REFERENCE.fullmatch(path)) is None or not _REGISTRY.fullmatch(registry):
        why = f"{text!r} names no image; one is as python:3.12, or registry.example.com/who/what:1@sha256:…"
        if not is_host and not default_registry:
            why = f"{text!r} names no registry, and the operator set no default one (default_registry)"
        raise InvalidRequest(field="reference", why=why)
    name = found["path"]
    if registry == _DOCKER_HUB and "/" not in name:
        name = f"library/{name}"
    tag = found["tag"] or ("" if found["digest"] else "latest")
    return Reference(registry=registry, path=name, tag=tag, digest=found["digest"] or "")


# What Skopeo and Buildah say of a registry, in the order in which it is looked for.
_REFUSED = re.compile(r"unauthorized|authentication required|access to the resource is denied|denied: ", re.I)
_UNKNOWN = re.compile(
    r"manifest unknown|name unknown|repository name not known|status code 404|not found", re.I
)
_ARCHITECTURE = re.compile(r"no image found in (?:image index|manifest list) for architecture (\w+)", re.I)
_PLAIN = re.compile(r"server gave HTTP response to HTTPS client|first record does not look like a TLS")
_NO_RULE = re.compile(r"Forbidden|403")
_AWAY = re.compile(
    r"no such host|connection refused|no route to host|i/o timeout|network is unreachable|Bad Gateway|"
    r"Gateway Timeout|pinging container registry|certificate|EOF|lookup ",
    re.I,
)
_FULL = re.compile(r"no space left|disk quota exceeded", re.I)
_LOG = re.compile(r'^time="[^"]*" level=\w+ msg=')


def explain_pull(reference: Reference, said: list[str], architecture: str) -> SandboxerError:
    """Returns the error that says why an image could not be fetched, by the last words of Skopeo."""
    text = "\n".join(said)
    registry = reference.registry
    if _FULL.search(text):
        return TooLarge(what="image", limit="the disk of the sandbox that fetches it")
    if _ARCHITECTURE.search(text):
        return InvalidRequest(field="reference", why=f"{reference} has no image for {architecture}")
    if _PLAIN.search(text):
        why = f"{registry} speaks plain HTTP; say so (`--plain-http`) if you trust the way to it"
        return InvalidRequest(field="plain_http", why=why)
    if _REFUSED.search(text):
        return Forbidden(
            why=f"{registry} refuses {reference} without other credentials",
            reason="registry_refused",
            hint="Give user and password of that registry (`--authfile`), or correct the name.",
        )
    if _UNKNOWN.search(text):
        return NotFound(what="image", id=str(reference))
    if _NO_RULE.search(text):
        return Forbidden(
            why=f"no egress rule leads to {registry} from your sandboxes",
            reason="egress",
            hint=f"Allow it: sandboxer egress allow account {registry}",
        )
    if _AWAY.search(text):
        return Unavailable(why=f"the registry {registry} cannot be reached: {last_words(said)}")
    return ImageBuildFailed(why=last_words(said))


def explain_build(said: list[str], exit_code: int) -> SandboxerError:
    if _FULL.search("\n".join(said)):
        return TooLarge(what="build", limit="the disk of the sandbox that builds it")
    return InvalidRequest(field="Dockerfile", why=f"building it ended with {exit_code}: {last_words(said)}")


def explain_step(step: str) -> Callable[[list[str], int], SandboxerError]:
    """Returns what says why a step of a template failed."""

    def explain(said: list[str], exit_code: int) -> SandboxerError:
        found = explain_build(said, exit_code)
        why = f"{step[:200]}: exit status {exit_code}: {last_words(said)}"
        return found if isinstance(found, TooLarge) else InvalidRequest(field="steps", why=why)

    return explain


def last_words(said: list[str]) -> str:
    shown = [_LOG.sub("", line).strip()[:300] for line in said if line.strip()]
    return " | ".join(shown[-3:]) or "it said nothing"
