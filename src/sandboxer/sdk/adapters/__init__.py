"""Other people's programs, given this platform's sandboxes: each module needs the extra of its name.

Nothing here is imported by the client itself, so that it stays light.
"""
