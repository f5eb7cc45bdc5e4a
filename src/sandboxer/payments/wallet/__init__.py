"""The paying side: an agent's wallet, encrypted on disk, that spends within caps and never beyond."""
