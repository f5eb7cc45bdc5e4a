"""Finds backends by name: those shipped, and extensions, which an installed package announces or a file of
the operator names.

A backend is loaded when it is asked for. A package announces one with an entry point in the group
`sandboxer.backends`; its object, the handler, takes the platform's settings and returns an async context
manager. What cannot be loaded says which package is missing and how it is installed.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from sandboxer.backends.contract import Backend, Capability, capabilities_of
from sandboxer.backends.reports import EstimatesCost
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.kernel.values import value_class

GROUP = "sandboxer.backends"
_OURS = "sandboxer"
SHIPPED: Mapping[str, str] = {
    "ext.compose-ssh": "sandboxer.wiring.compose_ssh:open_backend",
    "ext.docker": "sandboxer.wiring.docker:open_backend",
    "ext.namespaces": "sandboxer.backends.namespaces:open_backend",
    "ext.oci": "sandboxer.wiring.oci:open_backend",
    "ext.scripted": "sandboxer.backends.scripted:open_backend",
}
# Those shipped that never ran against what they drive, and why. Routing takes one only where it is named.
EXPERIMENTAL: Mapping[str, str] = {}

Opener = Callable[..., AbstractAsyncContextManager[Backend]]


class HostSettings(Protocol):
    """What an extension may ask of the platform's settings."""

    @property
    def state_dir(self) -> Path:
        """Returns where it may have a folder of its own name."""

    @property
    def images_dir(self) -> Path:
        """Returns where base images are: `<name>/rootfs` is the tree of one."""

    @property
    def guest_dir(self) -> Path:
        """Returns where the programs are that run inside, `supervisor` among them."""


@value_class
class Extension:
    """Says where a backend comes from."""

    name: str
    # `module:attribute`.
    handler: str
    # What brought it, in words.
    source: str
    # The package whose extras it may need.
    package: str = _OURS
    extras: tuple[str, ...] = ()
    # Where its module is, if it is a file of the operator beside the one that names it.
    folder: Path | None = None
    # Given to the handler by name, beside the platform's settings.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # What it has to be able to do; it is not used if it cannot.
    capabilities: frozenset[Capability] = frozenset()
    # Somebody else charges for its sandboxes, so it has to say how much.
    is_metered: bool = False
    # Why nobody should rely on it yet. A package says it in its module: `experimental_reason` knows both.
    experimental: str | None = None


Extensions = Mapping[str, Extension]
NONE: Extensions = {}


def known(files: Extensions = NONE) -> dict[str, Extension]:
    """Returns all backends that can be used here by name: `files` are those that the operator's name."""
    shipped = {
        name: Extension(name=name, handler=place, source="shipped", experimental=EXPERIMENTAL.get(name))
        for name, place in SHIPPED.items()
    }
    announced = {entry.name: _announced(entry) for entry in entry_points(group=GROUP)}
    return {**announced, **files, **shipped}


def find_extension(name: str, files: Extensions = NONE) -> Extension:
    """Returns where a backend comes from. Raises InvalidRequest for an unknown name."""
    found = known(files)
    if name not in found:
        close = difflib.get_close_matches(name, found, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(found))}"
        raise InvalidRequest(field="backends", why=f"there is no backend {name}; {hint}")
    return found[name]


def find_opener(name: str, files: Extensions = NONE) -> Opener:
    """Returns the function that opens this backend. Raises InvalidRequest for an unknown name,
    NotAvailable if it cannot load.
    """
    extension = find_extension(name, files)
    attribute = extension.handler.partition(":")[2]
    opener: Opener | None = getattr(_module(extension), attribute, None)
    if not callable(opener):
        raise _unloadable(extension, f"its module has no {attribute} that can be called")
    return opener if name in SHIPPED else _checked(extension, opener)


def deviations_of(name: str, files: Extensions = NONE) -> dict[str, str]:
    """Returns which checks of the contract a backend says that it does not pass, with its reasons."""
    declared: Mapping[str, str] = getattr(_module(find_extension(name, files)), "DEVIATIONS", {})
    return dict(declared)


def experimental_reason(name: str, files: Extensions = NONE) -> str | None:
    """Returns why a backend is experimental, as its file or `EXPERIMENTAL` of its module says; None if it is
    not. Routing takes an experimental one only where it is named. Raises as `find_opener` does.
    """
    extension = find_extension(name, files)
    if extension.experimental is not None or name in SHIPPED:
        return extension.experimental
    said: str | None = getattr(_module(extension), "EXPERIMENTAL", None)
    return said


def _announced(entry: EntryPoint) -> Extension:
    package = entry.dist.name if entry.dist is not None else entry.module
    return Extension(
        name=entry.name,
        handler=f"{entry.module}:{entry.attr}",
        source=f"package {package}",
        package=package,
        extras=tuple(entry.extras),
    )


def _module(extension: Extension) -> ModuleType:
    name = extension.handler.partition(":")[0]
    try:
        beside = None if extension.folder is None else extension.folder / f"{name}.py"
        return importlib.import_module(name) if beside is None or not beside.is_file() else _loaded(beside)
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if missing == name:
            raise _unloadable(extension, f"there is no module {name}") from error
        raise _lacking(extension, missing.partition(".")[0]) from error
    except Exception as error:
        # Code of others: whatever it raises, the platform says whose it is.
        raise _unloadable(extension, f"{type(error).__name__}: {error}") from error


def _loaded(file: Path) -> ModuleType:
    name = f"sandboxer_extension_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Looked up there by whatever asks for the module of a class.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _checked(extension: Extension, opener: Opener) -> Opener:
    @asynccontextmanager
    async def opened(settings: Any) -> AsyncIterator[Backend]:
        try:
            opening = opener(settings, **extension.settings)
        except TypeError as error:
            # Settings that its handler does not know, most likely.
            raise _unloadable(extension, str(error)) from error
        async with opening as backend:
            _demand_as_declared(extension, backend)
            yield backend

    return opened


def _demand_as_declared(extension: Extension, backend: Backend) -> None:
    if backend.name != extension.name:
        raise _unloadable(extension, f"its handler opens one that calls itself {backend.name}")
    if missing := extension.capabilities - capabilities_of(backend):
        words = ", ".join(sorted(missing))
        raise _unloadable(extension, f"it declares what its handler does not implement: {words}")
    if extension.is_metered and not isinstance(backend, EstimatesCost):
        raise _unloadable(extension, "its sandboxes cost money, and it estimates no cost (EstimatesCost)")


def _lacking(extension: Extension, module: str) -> NotAvailable:
    extras = extension.extras or _extras_with(module, extension.package)
    wanted = f"'{extension.package}[{','.join(extras)}]'" if extras else module
    return _unloadable(
        extension, f"{module} is not installed", hint=f"Install what it needs: pip install {wanted}"
    )


def _extras_with(module: str, package: str) -> tuple[str, ...]:
    """Returns the extra of a package that brings a module, as far as the two are called alike."""
    try:
        wanted = requires(package) or []
    except PackageNotFoundError:
        return ()
    for one in wanted:
        found = re.match(r"([A-Za-z0-9._-]+).*\bextra == ['\"]([^'\"]+)['\"]", one)
        if found is not None and re.sub("[-._]+", "_", found[1]).lower() == module.lower():
            return (found[2],)
    return ()


def _unloadable(
    extension: Extension, why: str, hint: str = "Mend it, or the `handler` that it names."
) -> NotAvailable:
    return NotAvailable(
        what=f"backend {extension.name}", why=f"it cannot be loaded ({extension.source}): {why}", hint=hint
    )
