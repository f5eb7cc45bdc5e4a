"""What clients of unsandbox can ask for, under paths of ours that the edge makes of theirs.

Each is one of our own operations in other words: who may call, scopes, limits, idempotency and audit are
taken from that one (`like`), so that none is decided twice. They are in a table of their own: clients,
documents and verbs of ours are not made of them.
"""

from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import Field

from sandboxer.wire.operations import accounts, artifacts, execute, payments, platform, services
from sandboxer.wire.operations.declaration import (
    NO_PARAMETERS,
    Answered,
    AnyOperation,
    Empty,
    Events,
    Idempotency,
    Json,
    Method,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    WayOut,
    needs,
)
from sandboxer.wire.services import LOG_TAIL_MAX
from sandboxer.wire.unsandbox import ROOT, models


class ServiceLogsQuery(Parameters):
    all: bool = False
    lines: Annotated[int, Field(ge=1, le=LOG_TAIL_MAX)] = 9000


class LogsQuery(Parameters):
    source: Annotated[str, Field(max_length=64)] = "all"
    lines: Annotated[int, Field(ge=1, le=LOG_TAIL_MAX)] = 100
    since: Annotated[str, Field(pattern=r"^[0-9]{1,6}[smhd]$")] = "5m"
    grep: Annotated[str, Field(max_length=256)] = ""


class SourcePath(Parameters):
    source: Annotated[str, Field(max_length=64)]


class AccessPath(artifacts.ImagePath):
    # A public key.
    key: Annotated[str, Field(max_length=64)]


class ClaimQuery(Parameters):
    # What was given to who paid, or redeemed.
    claim: Annotated[str | None, Field(max_length=200)] = None


class GiftPath(Parameters):
    # Of a card, or of what was redeemed of one.
    gift: Annotated[str, Field(max_length=64)]


def like(
    ours: AnyOperation,
    id: str,
    route: str,
    told: type[Any] = models.Told,
    said: type[Any] | None = None,
    **changes: Any,
) -> AnyOperation:
    """Returns one of our operations as it is reached at `route`, with the body and the answer of theirs."""
    method, _, path = route.partition(" ")
    is_later = isinstance(ours.answer, Answered) and ours.answer.status == 202
    given: dict[str, Any] = {
        "id": f"unsandbox{id}",
        "method": cast(Method, method),
        "path": ROOT + path,
        "noun": "unsandbox",
        "query": NO_PARAMETERS,
        "body": Empty() if said is None else Json(said),
        "answer": Answered(model=told, status=202 if is_later else 200),
        "deprecated": None,
    }
    return replace(ours, **{**given, **changes})


def also(one: AnyOperation, id: str, route: str, **changes: Any) -> AnyOperation:
    """Returns the same at another address: their clients do not agree on all of them."""
    method, _, path = route.partition(" ")
    return replace(one, id=f"unsandbox{id}", method=cast(Method, method), path=ROOT + path, **changes)


# Code that runs once.
EXECUTE = like(execute.EXECUTE_CODE, "Execute", "POST /execute", models.Execution, models.Execute)
EXECUTE_ASYNC = like(
    execute.EXECUTE_LATER, "ExecuteAsync", "POST /execute/async", models.Execution, models.Execute
)
# The code is the body, and its first line says who runs it.
RUN = like(execute.EXECUTE_CODE, "Run", "POST /run", models.Execution)
RUN_ASYNC = like(execute.EXECUTE_LATER, "RunAsync", "POST /run/async", models.Execution)
JOBS = like(execute.LIST_JOBS, "Jobs", "GET /jobs")
GET_JOB = like(execute.GET_JOB, "GetJob", "GET /jobs/{job_id}", models.Execution)
CANCEL_JOB = like(execute.CANCEL_JOB, "CancelJob", "DELETE /jobs/{job_id}", models.Execution)
CANCEL_JOB_TOO = also(CANCEL_JOB, "CancelJobToo", "POST /jobs/{job_id}/cancel")
LANGUAGES = like(platform.LIST_LANGUAGES, "Languages", "GET /languages")
SHELLS = like(platform.LIST_SHELLS, "Shells", "GET /shells")

# Sessions, and what is done to their sandboxes. Here a sandbox is always made for one.
_MAKES = needs(Scope.EXEC, Scope.SANDBOXES_CREATE)
NEW_SESSION = like(
    execute.START_SESSION, "NewSession", "POST /sessions", models.Session, models.NewSession, needs=_MAKES
)
SESSIONS = like(execute.LIST_SESSIONS, "Sessions", "GET /sessions")
_SESSION = "/sessions/{session_id}"
GET_SESSION = like(execute.GET_SESSION, "GetSession", f"GET {_SESSION}", models.Session)
END_SESSION = like(execute.END_SESSION, "EndSession", f"DELETE {_SESSION}")
SESSION_EXECUTE = like(
    execute.RUN_CELL, "SessionExecute", f"POST {_SESSION}/execute", models.Execution, models.Command
)
SESSION_SHELL = also(SESSION_EXECUTE, "SessionShell", f"POST {_SESSION}/shell")
FREEZE_SESSION = like(execute.FREEZE_SESSION, "FreezeSession", f"POST {_SESSION}/freeze")
UNFREEZE_SESSION = like(execute.THAW_SESSION, "UnfreezeSession", f"POST {_SESSION}/unfreeze")
BOOST_SESSION = like(execute.BOOST_SESSION, "BoostSession", f"POST {_SESSION}/boost")
UNBOOST_SESSION = like(execute.UNBOOST_SESSION, "UnboostSession", f"POST {_SESSION}/unboost")
LOCK_SESSION = like(execute.LOCK_SESSION, "LockSession", f"POST {_SESSION}/lock")
UNLOCK_SESSION = like(execute.UNLOCK_SESSION, "UnlockSession", f"POST {_SESSION}/unlock")
# As what is done with its sandbox: the path names the session.
_OF_SESSION: dict[str, Any] = {
    "parameters": execute.SessionPath,
    "operator_audit": OperatorAudit(thing="session", action="session.snapshot"),
}
SNAPSHOT_SESSION = like(
    artifacts.TAKE_SNAPSHOT, "SnapshotSession", f"POST {_SESSION}/snapshot", models.Snapshot, **_OF_SESSION
)
RESTORE_SESSION = like(
    artifacts.RESTORE_SNAPSHOT,
    "RestoreSession",
    f"POST {_SESSION}/restore",
    said=models.RestoreFrom,
    parameters=execute.SessionPath,
    operator_audit=OperatorAudit(thing="session", action="session.restore"),
)

# Services.
NEW_SERVICE = like(
    services.CREATE_SERVICE,
    "NewService",
    "POST /services",
    models.Service,
    models.NewService,
    # They are open to everybody.
    way_out=WayOut(),
)
SERVICES = like(services.LIST_SERVICES, "Services", "GET /services")
_SERVICE = "/services/{service}"
GET_SERVICE = like(services.GET_SERVICE, "GetService", f"GET {_SERVICE}", models.Service)
CHANGE_SERVICE = like(
    services.CHANGE_SERVICE, "ChangeService", f"PATCH {_SERVICE}", models.Service, models.ChangeService
)
RESIZE_SERVICE = also(CHANGE_SERVICE, "ResizeService", f"POST {_SERVICE}/resize")
REMOVE_SERVICE = like(services.REMOVE_SERVICE, "RemoveService", f"DELETE {_SERVICE}")
SERVICE_EXECUTE = like(
    services.REDEPLOY_SERVICE,
    "ServiceExecute",
    f"POST {_SERVICE}/execute",
    models.Execution,
    models.Command,
    operator_audit=OperatorAudit(thing="service", action="service.exec"),
)
FREEZE_SERVICE = like(services.FREEZE_SERVICE, "FreezeService", f"POST {_SERVICE}/freeze")
UNFREEZE_SERVICE = like(services.THAW_SERVICE, "UnfreezeService", f"POST {_SERVICE}/unfreeze")
LOCK_SERVICE = like(services.LOCK_SERVICE, "LockService", f"POST {_SERVICE}/lock")
UNLOCK_SERVICE = like(services.UNLOCK_SERVICE, "UnlockService", f"POST {_SERVICE}/unlock")
REDEPLOY_SERVICE = like(
    services.REDEPLOY_SERVICE, "RedeployService", f"POST {_SERVICE}/redeploy", models.Service, models.Redeploy
)
SNAPSHOT_SERVICE = like(
    artifacts.TAKE_SNAPSHOT,
    "SnapshotService",
    f"POST {_SERVICE}/snapshot",
    models.Snapshot,
    parameters=services.ServicePath,
    operator_audit=OperatorAudit(thing="service", action="service.snapshot"),
)
SERVICE_LOGS = like(services.READ_SERVICE_LOGS, "ServiceLogs", f"GET {_SERVICE}/logs", query=ServiceLogsQuery)
DOMAINS = like(services.CLAIM_SERVICE_DOMAIN, "Domains", f"PUT {_SERVICE}/domains", said=models.ChangeDomains)
GET_ENV = like(services.GET_SERVICE_VAULT, "GetEnv", f"GET {_SERVICE}/env")
# The text of a file `.env`, as it is or in JSON.
SET_ENV = like(services.SET_SERVICE_VAULT, "SetEnv", f"PUT {_SERVICE}/env")
POST_ENV = like(services.SET_SERVICE_VAULT, "PostEnv", f"POST {_SERVICE}/env")
WIPE_ENV = like(services.WIPE_SERVICE_VAULT, "WipeEnv", f"DELETE {_SERVICE}/env")
EXPORT_ENV = like(services.GET_SERVICE_VAULT, "ExportEnv", f"POST {_SERVICE}/env/export")

# Snapshots.
NEW_SNAPSHOT = like(
    artifacts.TAKE_SNAPSHOT,
    "NewSnapshot",
    "POST /snapshots",
    models.Snapshot,
    models.NewSnapshot,
    parameters=NO_PARAMETERS,
    operator_audit=None,
)
SNAPSHOTS = like(artifacts.LIST_SNAPSHOTS, "Snapshots", "GET /snapshots")
_SNAPSHOT = "/snapshots/{snapshot_id}"
GET_SNAPSHOT = like(artifacts.GET_SNAPSHOT, "GetSnapshot", f"GET {_SNAPSHOT}", models.Snapshot)
DROP_SNAPSHOT = like(artifacts.DROP_SNAPSHOT, "DropSnapshot", f"DELETE {_SNAPSHOT}")
LOCK_SNAPSHOT = like(artifacts.LOCK_SNAPSHOT, "LockSnapshot", f"POST {_SNAPSHOT}/lock")
UNLOCK_SNAPSHOT = like(artifacts.UNLOCK_SNAPSHOT, "UnlockSnapshot", f"POST {_SNAPSHOT}/unlock")
RESTORE_SNAPSHOT = like(artifacts.RESTORE_SNAPSHOT, "RestoreSnapshot", f"POST {_SNAPSHOT}/restore")
CLONE_SNAPSHOT = like(
    artifacts.CLONE_SNAPSHOT,
    "CloneSnapshot",
    f"POST {_SNAPSHOT}/clone",
    said=models.Clone,
    needs=_MAKES,
    idempotency=Idempotency.NONE,
)

# Images.
PUBLISH = like(artifacts.PUBLISH_IMAGE, "Publish", "POST /images", models.Image, models.Publish)
PUBLISH_TOO = also(PUBLISH, "PublishToo", "POST /images/publish")
IMAGES = like(platform.LIST_IMAGES, "Images", "GET /images")
OWNED_IMAGES = like(platform.LIST_IMAGES, "OwnedImages", "GET /images/owned")
SHARED_IMAGES = like(platform.LIST_IMAGES, "SharedImages", "GET /images/shared")
PUBLIC_IMAGES = like(platform.LIST_IMAGES, "PublicImages", "GET /images/public")
_IMAGE = "/images/{image_id}"
GET_IMAGE = like(artifacts.GET_IMAGE, "GetImage", f"GET {_IMAGE}", models.Image)
REMOVE_IMAGE = like(artifacts.REMOVE_IMAGE, "RemoveImage", f"DELETE {_IMAGE}")
LOCK_IMAGE = like(artifacts.LOCK_IMAGE, "LockImage", f"POST {_IMAGE}/lock")
UNLOCK_IMAGE = like(artifacts.UNLOCK_IMAGE, "UnlockImage", f"POST {_IMAGE}/unlock")
SET_VISIBILITY = like(
    artifacts.CHANGE_IMAGE, "SetVisibility", f"POST {_IMAGE}/visibility", models.Image, models.Visibility
)
TRUSTED = like(artifacts.LIST_IMAGE_GRANTS, "Trusted", f"GET {_IMAGE}/trusted")
GRANT = like(artifacts.GRANT_IMAGE, "Grant", f"POST {_IMAGE}/grant", said=models.Grant)
REVOKE = like(
    artifacts.REVOKE_IMAGE,
    "Revoke",
    f"POST {_IMAGE}/revoke",
    said=models.Grant,
    parameters=artifacts.ImagePath,
)
TRUSTED_TOO = also(TRUSTED, "TrustedToo", f"GET {_IMAGE}/access")
GRANT_TOO = also(GRANT, "GrantToo", f"POST {_IMAGE}/access")
GRANT_BY_NAME = also(GRANT, "GrantByName", f"POST {_IMAGE}/access/grant")
REVOKE_TOO = also(REVOKE, "RevokeToo", f"POST {_IMAGE}/access/revoke")
REVOKE_BY_PATH = also(
    REVOKE, "RevokeByPath", f"DELETE {_IMAGE}/access/{{key}}", body=Empty(), parameters=AccessPath
)
TRANSFER = like(artifacts.TRANSFER_IMAGE, "Transfer", f"POST {_IMAGE}/transfer", said=models.Transfer)
SPAWN = like(
    services.CREATE_SERVICE,
    "Spawn",
    f"POST {_IMAGE}/spawn",
    models.Service,
    models.Spawn,
    parameters=artifacts.ImagePath,
    way_out=WayOut(),
)
CLONE_IMAGE = like(artifacts.CLONE_IMAGE, "CloneImage", f"POST {_IMAGE}/clone", models.Image)

# The platform and the key that asks.
HEALTH = like(platform.HEALTH, "Health", "GET /health")
CLUSTER = like(platform.SHOW_CLUSTER, "Cluster", "GET /cluster")
STATS = like(platform.SHOW_STATS, "Stats", "GET /stats")
POOLS = like(platform.LIST_POOLS, "Pools", "GET /pools")
VALIDATE_KEY = like(platform.SHOW_LIMITS, "ValidateKey", "POST /keys/validate", models.KeyState)
THROTTLED = like(platform.SHOW_LIMITS, "Throttled", "POST /keys/am-i-throttled")
LOGS = like(accounts.FOLLOW_ACCOUNT_EVENTS, "Logs", "GET /logs", query=LogsQuery)
LOGS_OF = also(LOGS, "LogsOf", "GET /logs/{source}", parameters=SourcePath)
STREAM_LOGS = like(
    accounts.FOLLOW_ACCOUNT_EVENTS,
    "StreamLogs",
    "GET /logs/stream",
    query=LogsQuery,
    answer=Events(words="Lines, as long as there are any."),
)
STREAM_LOGS_OF = also(STREAM_LOGS, "StreamLogsOf", "GET /logs/{source}/stream", parameters=SourcePath)
ASK_LOGS = like(accounts.FOLLOW_ACCOUNT_EVENTS, "AskLogs", "POST /paas/logs", said=models.AskLogs)
STREAM_LOGS_TOO = also(STREAM_LOGS, "StreamLogsToo", "GET /paas/logs/stream")
DRAW = like(platform.SHOW_LIMITS, "Draw", "POST /image")

# The portal: prices, invoices, gift cards.
PRICES = like(payments.GET_PRICING_FOR_AGENTS, "Prices", "GET /pricing-for-agents.json")
NEW_INVOICE = like(payments.CREATE_INVOICE, "NewInvoice", "POST /api/invoices", said=models.NewInvoice)
CHECKOUT = also(NEW_INVOICE, "Checkout", "POST /api/checkout")
PAYMENT = like(payments.GET_INVOICE, "Payment", "GET /payment/{invoice_id}/status", query=ClaimQuery)
NEW_GIFT_CARD = like(
    payments.BUY_GIFT_CARD, "NewGiftCard", "POST /api/gift-cards/create", said=models.NewGiftCard
)
REDEEM = like(payments.REDEEM_GIFT_CARD, "Redeem", "POST /api/gift-cards/redeem", said=models.RedeemGiftCard)
GIFT_STATUS = like(
    payments.GET_GIFT_CARD,
    "GiftStatus",
    "GET /api/gift-cards/{gift}/status",
    parameters=GiftPath,
    query=ClaimQuery,
)
GIFT_PRICES = like(payments.GET_GIFT_PRICING, "GiftPrices", "GET /api/gift-cards/pricing")

OPERATIONS: tuple[AnyOperation, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Operation)
)
