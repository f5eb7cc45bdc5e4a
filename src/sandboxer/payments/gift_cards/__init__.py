"""Gift cards: prepaid US cents behind four words, redeemed for a tier or for sats, whole or in part."""
