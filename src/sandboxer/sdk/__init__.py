"""The Python client.

from sandboxer.sdk.sync.client import Sandboxer        # blocking
from sandboxer.sdk.aio.client import AsyncSandboxer    # asyncio, the same words
"""
