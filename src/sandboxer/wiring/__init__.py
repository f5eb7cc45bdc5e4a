"""Where the packages meet: the only place that knows concrete classes."""

from sandboxer.wiring.backends import namespaces_settings
from sandboxer.wiring.opening import open_platform
from sandboxer.wiring.platform import Platform

__all__ = ["Platform", "namespaces_settings", "open_platform"]
