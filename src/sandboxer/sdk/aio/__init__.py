"""The asyncio client: the same words as the blocking one."""
