"""The operations on webhooks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Idempotency,
    Json,
    Nothing,
    Operation,
    Parameters,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import DeliveryPath, WebhookPath
from sandboxer.wire.webhooks import (
    ChangeWebhook,
    CreateWebhook,
    Delivery,
    DeliveryPage,
    DeliveryState,
    NewWebhook,
    RotateSecret,
    Webhook,
    WebhookList,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX


class ListWebhookDeliveriesQuery(Parameters):
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,18}$", max_length=18)] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT
    state: DeliveryState | None = None


CREATE_WEBHOOK = Operation(
    id="createWebhook",
    method="POST",
    path="/v1/webhooks",
    noun="webhooks",
    summary="Be told of what happens, by signed requests; the secret is shown once",
    body=Json(CreateWebhook),
    answer=Answered(model=NewWebhook, status=201),
    needs=needs(Scope.ACCOUNT_MANAGE),
    idempotency=Idempotency.SECRET,
    failures=(409,),
)
LIST_WEBHOOKS = Operation(
    id="listWebhooks",
    method="GET",
    path="/v1/webhooks",
    noun="webhooks",
    summary="This account's webhooks",
    answer=Answered(model=WebhookList),
    needs=needs(Scope.ACCOUNT_READ),
)
GET_WEBHOOK = Operation(
    id="getWebhook",
    method="GET",
    path="/v1/webhooks/{webhook_id}",
    noun="webhooks",
    summary="One webhook",
    parameters=WebhookPath,
    answer=Answered(model=Webhook),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)
CHANGE_WEBHOOK = Operation(
    id="changeWebhook",
    method="PATCH",
    path="/v1/webhooks/{webhook_id}",
    noun="webhooks",
    summary="Change where it goes, what it hears of, or switch it off and on",
    parameters=WebhookPath,
    body=Json(ChangeWebhook),
    answer=Answered(model=Webhook),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404,),
)
REMOVE_WEBHOOK = Operation(
    id="removeWebhook",
    method="DELETE",
    path="/v1/webhooks/{webhook_id}",
    noun="webhooks",
    summary="Be told no more; what waits is not sent",
    parameters=WebhookPath,
    answer=Nothing(),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404,),
)
ROTATE_WEBHOOK_SECRET = Operation(
    id="rotateWebhookSecret",
    method="POST",
    path="/v1/webhooks/{webhook_id}/rotate-secret",
    noun="webhooks",
    summary="A new secret, shown once; the old one signs beside it for a while",
    parameters=WebhookPath,
    body=Json(RotateSecret),
    answer=Answered(model=NewWebhook),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404,),
)
TEST_WEBHOOK = Operation(
    id="testWebhook",
    method="POST",
    path="/v1/webhooks/{webhook_id}/test",
    noun="webhooks",
    summary="Send a test message now, and say how that went",
    parameters=WebhookPath,
    answer=Answered(model=Delivery),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404,),
)
LIST_WEBHOOK_DELIVERIES = Operation(
    id="listWebhookDeliveries",
    method="GET",
    path="/v1/webhooks/{webhook_id}/deliveries",
    noun="webhooks",
    summary="What was sent and what waits, newest first, each with its tries",
    parameters=WebhookPath,
    query=ListWebhookDeliveriesQuery,
    answer=Answered(model=DeliveryPage),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)
REDELIVER_WEBHOOK = Operation(
    id="redeliverWebhook",
    method="POST",
    path="/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
    noun="webhooks",
    summary="Send it again now, whatever became of it; the same webhook-id",
    parameters=DeliveryPath,
    answer=Answered(model=Delivery),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404, 409),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    CREATE_WEBHOOK,
    LIST_WEBHOOKS,
    GET_WEBHOOK,
    CHANGE_WEBHOOK,
    REMOVE_WEBHOOK,
    ROTATE_WEBHOOK_SECRET,
    TEST_WEBHOOK,
    LIST_WEBHOOK_DELIVERIES,
    REDELIVER_WEBHOOK,
)
