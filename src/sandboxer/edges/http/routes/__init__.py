"""The routes, one file per noun. A route reads the request, calls one use case and writes the answer."""
