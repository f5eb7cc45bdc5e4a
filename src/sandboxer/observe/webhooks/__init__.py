"""Signed webhooks: who is told of what, the outbox of what is still to be told, and the delivery worker who
tells it.

Delivered at least once: a message has an id (`webhook-id`) that stays the same however often it is sent.
"""
