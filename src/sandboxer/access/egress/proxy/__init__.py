"""The data plane of egress: one connection from inside, one to the outside, and the rules between them."""
