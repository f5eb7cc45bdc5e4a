"""What clients of unsandbox say and hear: the models of its API, and the table of what they can ask for.
Names and words are unsandbox's.
"""

from __future__ import annotations

# Below this path is unsandbox's API; its clients sign what follows it.
ROOT = "/unsandbox"
# Its clients have no setting for the address: these names are written into each of them.
API_HOST = "api.unsandbox.com"
PORTAL_HOST = "unsandbox.com"
