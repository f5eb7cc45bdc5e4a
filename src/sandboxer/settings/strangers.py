"""Which backends a platform opens, and which wall the accounts of strangers get by that: those that the
operator did not open.
"""

from __future__ import annotations

from sandboxer.backends.oci.bundle import RuntimeKind
from sandboxer.backends.oci.runtime import find_runtime
from sandboxer.kernel.errors import NotAvailable
from sandboxer.settings import Settings

NAME = "ext.oci"


def backends_of(settings: Settings) -> tuple[str, ...]:
    """Returns the backends to open: those that the settings name. Where they name none, ext.oci as well if
    strangers may come, gVisor is there, and the operator did not say that they get what everybody gets.
    """
    if is_added(settings):
        return (*settings.backends, NAME)
    return settings.backends


def is_added(settings: Settings) -> bool:
    """Says whether ext.oci is opened though nobody named it."""
    is_silent = "backends" not in settings.model_fields_set and NAME not in settings.backends
    is_wanted = settings.strangers_wall != "profile" and not settings.is_by_invitation
    return is_silent and is_wanted and _why_not(settings) is None


def wall_of_strangers(settings: Settings) -> str:
    """Says in a line which wall accounts get that the operator did not open."""
    if settings.is_by_invitation:
        return "no account but those that you open may create anything"
    if settings.strangers_wall == "profile":
        return "as profiles say (SANDBOXER_STRANGERS_WALL=profile)"
    why = _why_not(settings)
    if why is None and NAME not in backends_of(settings):
        why = f"SANDBOXER_BACKENDS does not name {NAME}"
    if why is None:
        return f"a kernel of their own: gVisor, by {NAME} (creates take longer: docs/guides/routing.md)"
    if settings.strangers_wall == "strong":
        return f"nothing is made for them: {why}"
    return f"as profiles say: {why}"


def _why_not(settings: Settings) -> str | None:
    """Returns why no gVisor can be used here; None: it can."""
    try:
        program = find_runtime(settings.oci_runtime)
    except NotAvailable as error:
        return f"{error.facts['why']} (docs/guides/gvisor.md)"
    if RuntimeKind(program.name).has_own_kernel:
        return None
    return f"{program.name} gives no kernel of its own (SANDBOXER_OCI_RUNTIME)"
