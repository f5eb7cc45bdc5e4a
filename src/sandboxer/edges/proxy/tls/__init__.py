"""TLS before the proxy and the API: Caddy, its configuration and its supervision."""
