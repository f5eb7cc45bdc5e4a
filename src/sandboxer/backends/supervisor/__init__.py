"""Speaks with the guest supervisor (`guest/supervisor/`) by guest/PROTOCOL.md."""

from sandboxer.backends.supervisor.client import SupervisorGuest

__all__ = ["SupervisorGuest"]
