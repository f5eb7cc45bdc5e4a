"""The client, with asyncio."""
