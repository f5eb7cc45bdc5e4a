"""Whose certificates a client believes: the system's and SSL_CERT_FILE's (an operator's own authority), and
those that come with Python packages, for systems that have none."""

from __future__ import annotations

import ssl

import certifi


def trust_for(url: str) -> ssl.SSLContext | bool:
    """For httpx's `verify`. Without TLS nothing is loaded, which saves a client some 20 ms."""
    if not url.startswith("https:"):
        return False
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
