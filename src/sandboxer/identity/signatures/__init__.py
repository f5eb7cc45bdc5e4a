"""Checks whether the holder of an address signed a text. Pure: no clock, no store, no network."""
