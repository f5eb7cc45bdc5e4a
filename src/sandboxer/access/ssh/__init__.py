"""SSH: keys provisioned and revoked, and the decisions of the gateway that takes them."""
