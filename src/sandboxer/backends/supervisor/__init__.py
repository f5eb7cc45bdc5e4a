"""The host's end of the guest supervisor; the other is `guest/supervisor/`. Both keep guest/PROTOCOL.md."""

from sandboxer.backends.supervisor.client import SupervisorGuest

__all__ = ["SupervisorGuest"]
