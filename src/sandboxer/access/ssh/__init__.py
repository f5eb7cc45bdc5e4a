"""SSH: the keys that open sandboxes, and the limits of the gateway that accepts them."""
