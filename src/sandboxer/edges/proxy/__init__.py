"""The reverse proxy's data plane: HTTP, WebSocket and event streams to ports inside sandboxes."""
