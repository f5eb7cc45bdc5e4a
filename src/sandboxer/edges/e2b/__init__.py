"""E2B's two APIs, for its unmodified clients: the control plane, and the daemon (envd) that they expect
inside every sandbox, which is played here over the use cases of our own API.
"""
