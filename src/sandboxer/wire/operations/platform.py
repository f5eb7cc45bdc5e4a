"""The operations on the platform itself: probes, what it can do, what there is to choose from, its host."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.catalogue import ImageList, Language, LanguageList, LanguageWord, ProfileList, ShellList
from sandboxer.wire.images import Filter
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Answered,
    Bytes,
    Group,
    Parameters,
    RateClass,
    Scope,
    Tool,
    needs,
)
from sandboxer.wire.platform import (
    Capabilities,
    Cluster,
    Collected,
    Discovery,
    Garbage,
    Health,
    Host,
    Limits,
    Pools,
    Readiness,
    Reaped,
    StaleList,
    Stats,
)
from sandboxer.wire.promises import IsolationName
from sandboxer.wire.routes import (
    CapabilityName,
    GpuModel,
    Region,
    RouteExplanation,
    SatsPerHour,
    StrategyName,
)
from sandboxer.wire.sandboxes import ProfileId
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, Cursor, PageLimit


class LanguagePath(Parameters):
    name: LanguageWord


class ListImagesQuery(Parameters):
    filter: Annotated[Filter, Field(description="Which published ones.")] = "all"
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


class ProfilePath(Parameters):
    profile_id: ProfileId


class ExplainRouteQuery(Parameters):
    """As in a create."""

    isolation: IsolationName | None = None
    strategy: StrategyName | None = None
    region: Annotated[Region | None, Field(description="Where it stands.")] = None
    gpus: Annotated[int, Field(ge=0, le=64, description="GPUs for it alone.")] = 0
    gpu: Annotated[GpuModel | None, Field(description="Their model.")] = None
    max_sats_per_hour: Annotated[SatsPerHour | None, Field(description="The most that it may cost.")] = None
    capability: Annotated[
        list[CapabilityName], Field(max_length=16, description="What can be done with it; repeatable.")
    ] = Field(default_factory=list)


class ListLanguagesQuery(Parameters):
    image: Annotated[
        str | None,
        Field(
            pattern="^[a-z0-9][a-z0-9._@-]{0,127}$",
            max_length=128,
            description="Only what this image on this host has.",
            examples=["base"],
        ),
    ] = None
    available: Annotated[bool | None, Field(description="Only what runs here, or only what does not.")] = None


_CATALOGUE = Group(noun="catalogue", needs=ANY_KEY)
_LANGUAGES = Group(
    noun="languages",
    needs=NEVER_DELEGATED,
    access=Access.UNSIGNED,
    rate=RateClass.PUBLIC,
    cache_s=60,
    failures=(422,),
)
LIST_IMAGES = _CATALOGUE.operation(
    "listImages",
    "GET /v1/images",
    "List images: the host's own, and published ones that you may use",
    ImageList,
    query=ListImagesQuery,
    tools=(Tool(),),
)
LIST_PROFILES = _CATALOGUE.operation(
    "listProfiles",
    "GET /v1/profiles",
    "List the profiles of this platform",
    ProfileList,
    tools=(Tool(),),
)
EXPLAIN_ROUTE = _CATALOGUE.below("/v1/profiles/{profile_id}/route", ProfilePath).operation(
    "explainRoute",
    "GET",
    "Say of every backend whether it would make your sandbox of a profile, and why",
    RouteExplanation,
    query=ExplainRouteQuery,
    failures=(422, 503),
)
LIST_LANGUAGES = _LANGUAGES.operation(
    "listLanguages",
    "GET /v1/languages",
    "List languages, and whether they run here",
    LanguageList,
    query=ListLanguagesQuery,
    tools=(Tool("getLanguages"),),
)
GET_LANGUAGE = _LANGUAGES.below("/v1/languages/{name}", LanguagePath).operation(
    "getLanguage", "GET", "Show a language, by name, alias or extension", Language
)
LIST_SHELLS = _LANGUAGES.operation(
    "listShells",
    "GET /v1/shells",
    "List shells, and whether they run here",
    ShellList,
    query=ListLanguagesQuery,
    tools=(Tool("getShells"),),
)


class CollectGarbageQuery(Parameters):
    now: Annotated[bool, Field(description="Also what is still in its time of grace.")] = False


_HOST = Group(noun="host", needs=NEVER_DELEGATED)
_PROBES = Group(noun="probes", needs=NEVER_DELEGATED, access=Access.UNSIGNED, rate=RateClass.UNCOUNTED)
_PUBLIC = replace(_PROBES, rate=RateClass.PUBLIC)
# Nothing in them changes while the server runs.
_DOCUMENTS = replace(_PUBLIC, cache_s=300)
_INTROSPECTION = Group(noun="introspection", needs=ANY_KEY)
INSPECT_HOST = replace(_HOST, access=Access.OWNER).operation(
    "inspectHost", "GET /v1/host", "Show what this host can do and holds (owner)", Host
)
LIST_STALE = _HOST.operation(
    "listStale",
    "GET /v1/host/stale",
    "List disks and processes that no record accounts for (owner)",
    StaleList,
)
REAP_STALE = _HOST.operation(
    "reapStale",
    "POST /v1/host/reap-stale",
    "Remove disks and processes that no record accounts for (owner)",
    Reaped,
    is_lossy=True,
)
LIST_GARBAGE = _HOST.operation(
    "listGarbage",
    "GET /v1/host/garbage",
    "List what nobody needs any more, and when it is removed (owner)",
    Garbage,
)
COLLECT_GARBAGE = _HOST.operation(
    "collectGarbage",
    "POST /v1/host/collect-garbage",
    "Remove what nobody needs any more; the platform does this by itself, too (owner)",
    Collected,
    query=CollectGarbageQuery,
    is_lossy=True,
)
GET_OPENAPI = _DOCUMENTS.operation(
    "getOpenapi",
    "GET /openapi.json",
    "Get this document",
    Bytes(media_type="application/json", words="This document.", is_text=True),
)
SHOW_FRONT_PAGE = _PUBLIC.operation(
    "showFrontPage",
    "GET /",
    "Show what this is and how to begin: a page for people, a text for agents",
    Bytes(
        media_type="text/html",
        other_media_type="text/plain",
        words="A page for who accepts text/html; for others the text of /llms.txt.",
        is_text=True,
    ),
)
GET_LLMS_TEXT = _DOCUMENTS.operation(
    "getLlmsText",
    "GET /llms.txt",
    "Get a text for agents: what this is, how to authenticate and pay, every operation in one line",
    Bytes(media_type="text/plain", words="Text in Markdown.", is_text=True),
)
DISCOVER = _DOCUMENTS.operation(
    "discover",
    "GET /.well-known/sandboxer.json",
    "Show what this is, where its documents and prices are, and how requests are signed",
    Discovery,
)
HEALTH = _PROBES.operation(
    "health",
    "GET /health",
    "Say whether database and disks take writes, and backends can make sandboxes",
    Answered(model=Health, also=((503, "Something it needs fails."),)),
    tools=(Tool("healthCheck"),),
)
READY = _PROBES.operation(
    "ready",
    "GET /readyz",
    "Say whether it takes requests",
    Answered(model=Readiness, also=((503, "Not yet, or no more."),)),
)
METRICS = replace(_PROBES, access=Access.LOOPBACK).operation(
    "metrics",
    "GET /metrics",
    "Get metrics, for callers on this host",
    Bytes(media_type="text/plain", words="Figures for Prometheus.", is_text=True),
    failures=(403,),
)
GET_CAPABILITIES = _PUBLIC.operation(
    "getCapabilities", "GET /v1/capabilities", "Show what this platform can do", Capabilities, failures=(503,)
)
SHOW_CLUSTER = _INTROSPECTION.operation(
    "showCluster",
    "GET /v1/cluster",
    "Show the hosts, what they can do, and how much is free",
    Cluster,
    tools=(Tool("getClusterStatus"),),
)
LIST_POOLS = _INTROSPECTION.operation(
    "listPools",
    "GET /v1/pools",
    "Show how many sandboxes are kept ready, and the storage of disks",
    Pools,
    tools=(Tool(),),
)
SHOW_STATS = _INTROSPECTION.operation(
    "showStats",
    "GET /v1/stats",
    "Count sandboxes, jobs, sessions and services, by state",
    Stats,
    needs=needs(Scope.SANDBOXES_READ),
    tools=(Tool("getSystemStats"),),
)
SHOW_LIMITS = _INTROSPECTION.operation(
    "showLimits",
    "GET /v1/limits",
    "Show what this key may still do: requests this minute, slots, caps, longest and largest sandbox",
    Limits,
    tools=(Tool(),),
)
