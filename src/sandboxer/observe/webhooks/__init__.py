"""Sends signed webhooks: endpoints say who hears of what, the outbox holds what is still to be sent, and the
delivery worker sends it.

Delivered at least once: a message has an id (`webhook-id`) that stays the same however often it is sent.
"""
