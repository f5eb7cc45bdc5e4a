"""`ext.namespaces`, the default backend: no daemon, no KVM, one box, root on the host."""

from sandboxer.backends.namespaces.backend import NamespacesBackend, open_backend
from sandboxer.backends.namespaces.settings import NamespacesSettings, Overcommit

__all__ = ["NamespacesBackend", "NamespacesSettings", "Overcommit", "open_backend"]
