"""The Model Context Protocol: the tools of `sdk/tools.py` for the hosts of models, over HTTP at `/mcp` and by
stdio (`sandboxer mcp`), by the protocol's official package.

A tool is one operation of the API, sent as any client sends it: by the stdio server over the network, by the
platform's own to itself. Nothing here decides, and nothing here knows an operation.
"""
