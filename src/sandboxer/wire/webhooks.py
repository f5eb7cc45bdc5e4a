"""Webhooks: who is told of what, and how each message fared."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.words import Answer, Duration, Moment, Request, id_field

MAX_KINDS = 32
WebhookId = Annotated[
    str,
    Field(
        pattern=r"^(whk_[0-9a-hjkmnp-tv-z]{26}|once)$",
        max_length=30,
        description="Id of a webhook; `once` stands for the messages that brought their own URL.",
        examples=["whk_0123456789abcdefghjkmnpqrs"],
    ),
]
DeliveryId = Annotated[str, id_field("dlv", "Id of a delivery.")]
WebhookUrl = Annotated[
    str,
    Field(
        pattern=r"^https?://[\x21-\x7e]+$",
        max_length=2048,
        description="Where to; https, and a public address unless the operator allows others.",
        examples=["https://billing.example.com/hooks/sandboxer"],
    ),
]
EventKind = Annotated[
    str,
    Field(
        pattern=r"^(\*|[a-z_]{1,40}(\.[a-z_]{1,40}){0,3}(\.\*)?)$",
        max_length=200,
        description="A kind, all that begin so, or all.",
        examples=["sandbox.ready", "usage.*", "*"],
    ),
]
Kinds = Annotated[list[EventKind], Field(min_length=1, max_length=MAX_KINDS)]
DeliveryState = Literal["pending", "retrying", "delivered", "dead"]


class CreateWebhook(Request):
    url: WebhookUrl
    kinds: Annotated[Kinds, Field(default_factory=lambda: ["*"], description="What it hears of.")]
    all_accounts: Annotated[bool, Field(description="Hear of every account (owner).")] = False


class ChangeWebhook(Request):
    url: WebhookUrl | None = None
    kinds: Kinds | None = None
    enabled: bool | None = None


class RotateSecret(Request):
    overlap: Annotated[
        Duration, Field(description="How long the old secret still signs; 0s if it leaked.")
    ] = "24h"


class Webhook(Answer):
    id: str
    account: str
    url: str
    kinds: list[str]
    all_accounts: bool
    enabled: bool
    disabled_reason: str
    old_secret_until: Moment | None = None
    created_at: Moment


class NewWebhook(Webhook):
    secret: Annotated[str, Field(repr=False, description="whsec_ and base64; shown this once.")]


class WebhookList(Answer):
    webhooks: list[Webhook]


class DeliveryAttempt(Answer):
    at: Moment
    took_ms: int
    status: Annotated[int | None, Field(description="What the receiver answered, if it did.")] = None
    outcome: Annotated[
        str,
        Field(
            description="accepted, or why not: dns, forbidden_address, refused, tls, timeout, status, "
            "redirect, body_too_large, broken_answer, invalid_url, unsigned."
        ),
    ]
    reason: str


class Delivery(Answer):
    id: str
    message_id: Annotated[str, Field(description="The webhook-id header: the same at every try.")]
    kind: str
    state: DeliveryState
    reason: Annotated[str, Field(description="How the last try went, in words.")]
    created_at: Moment
    next_try_at: Moment | None = None
    ended_at: Moment | None = None
    attempts: list[DeliveryAttempt]


class DeliveryPage(Answer):
    deliveries: list[Delivery]
    next_cursor: str | None = None
