"""Stacks transactions as bytes (SIP-005): read strictly, written canonically."""
