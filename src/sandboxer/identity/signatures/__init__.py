"""Did the holder of this address sign this text? Pure: no clock, no store, no network."""
