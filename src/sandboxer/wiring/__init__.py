"""Builds a platform out of the packages. Only this package knows concrete classes."""

from sandboxer.wiring.backends import namespaces_settings
from sandboxer.wiring.platform import Platform
from sandboxer.wiring.startup import open_platform

__all__ = ["Platform", "namespaces_settings", "open_platform"]
