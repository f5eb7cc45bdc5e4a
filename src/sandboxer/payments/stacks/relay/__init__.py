"""The sponsor relay: it signs as sponsor, pays the fee, broadcasts, and tells what became of a payment."""
