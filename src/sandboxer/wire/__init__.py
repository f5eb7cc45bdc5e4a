"""Request and answer models of the public API, one file per noun. Names are a promise to clients."""
