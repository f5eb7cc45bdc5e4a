"""The files in this folder run inside a sandbox; the platform only reads them as data."""
