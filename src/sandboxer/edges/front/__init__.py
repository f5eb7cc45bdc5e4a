"""The hardened front of the API's listener: uvicorn sees only what the strict reader has let through."""
