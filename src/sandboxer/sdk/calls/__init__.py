# Written by scripts/generate-calls from wire/operations. Do not edit.
"""Every operation as a function that makes a `Call`."""
