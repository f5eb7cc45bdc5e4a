"""One file per schema change, `NNNN_what.py`, written by hand; a test compares the sum with the metadata."""
