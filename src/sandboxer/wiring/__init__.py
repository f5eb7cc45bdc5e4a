"""Builds a platform out of the packages. Only this package knows concrete classes."""

from sandboxer.wiring.backends import namespaces_settings
from sandboxer.wiring.startup import Platform, open_platform

__all__ = ["Platform", "namespaces_settings", "open_platform"]
