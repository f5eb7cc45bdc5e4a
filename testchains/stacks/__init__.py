"""Stacks on this machine: a chain around Clarinet's simnet, and a sponsor relay in front of it."""
