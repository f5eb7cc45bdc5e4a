"""x402's `exact` scheme on Stacks, for the three sides of the `x402` package: client, server, facilitator."""
