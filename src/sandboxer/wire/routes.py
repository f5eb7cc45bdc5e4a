"""How the backend of a sandbox is chosen: what a caller may want of it, and what was decided and why."""

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.words import Answer, Request

StrategyName = Annotated[
    Literal["explicit", "prefer-self-hosted", "lowest-cost", "lowest-latency"],
    Field(
        description="Which of the backends that profile and operator name is asked first. `explicit`: as they"
        " are named; `lowest-latency`: as measured by sandboxes that were made."
    ),
]
CapabilityName = Literal["stop", "freeze", "snapshot", "resize", "images", "volumes", "memory"]
BackendName = Annotated[str, Field(pattern=r"^ext\.[a-z0-9-]{1,60}$", max_length=64, examples=["ext.oci"])]
Region = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", max_length=63, examples=["eu-west"])
]
GpuModel = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", max_length=63, examples=["a100"])
]
SatsPerHour = Annotated[int, Field(ge=0, le=3_600_000_000)]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", max_length=128)]


def _no_capabilities() -> list[CapabilityName]:
    return []


class WantedRoute(Request):
    """What the backend must be. What none can meet is refused, with the reason of each."""

    strategy: StrategyName | None = None
    region: Annotated[Region | None, Field(description="Where it stands.")] = None
    gpus: Annotated[int, Field(ge=0, le=64, description="GPUs for this sandbox alone.")] = 0
    gpu: Annotated[GpuModel | None, Field(description="Their model; alone: one of them.")] = None
    max_sats_per_hour: Annotated[
        SatsPerHour | None, Field(description="The most that it may cost while it runs.")
    ] = None
    capabilities: Annotated[
        list[CapabilityName], Field(max_length=16, description="What can be done with it.")
    ] = Field(default_factory=_no_capabilities)
    keys: Annotated[
        dict[BackendName, SecretName],
        Field(
            max_length=8,
            description="Keys of your own at providers, by backend: names of secrets of your account. You pay"
            " the platform its fee alone then. A key is read when the sandbox is made, and kept nowhere.",
            examples=[{"ext.provider": "PROVIDER_KEY"}],
        ),
    ] = Field(default_factory=dict)


class Considered(Answer):
    """A backend, and why it was taken or not."""

    backend: Annotated[str, Field(examples=["ext.oci"])]
    verdict: Annotated[
        Literal["chosen", "fallback", "refused"],
        Field(description="`fallback`: it is asked if those before it fail."),
    ]
    reason: Annotated[str, Field(examples=["it is the one that is named"])]
    rate_msats_per_s: Annotated[
        int | None, Field(description="What this sandbox costs there; null: nobody knows.")
    ] = None
    latency_ms: Annotated[
        float | None, Field(description="How long it takes to make one, measured; null: not lately.")
    ] = None


class Attempt(Answer):
    """A backend that was asked to make it."""

    backend: str
    made: bool
    reason: str
    took_ms: float


def _nobody() -> list[Considered]:
    return []


def _no_attempts() -> list[Attempt]:
    return []


class Route(Answer):
    """How its backend was chosen when it was created."""

    strategy: str
    considered: Annotated[list[Considered], Field(description="Those that could make it first.")] = Field(
        default_factory=_nobody
    )
    more: Annotated[int, Field(description="Of how many more nothing was kept.")] = 0
    attempts: Annotated[list[Attempt], Field(description="Those that were asked, in order.")] = Field(
        default_factory=_no_attempts
    )


class RouteExplanation(Answer):
    profile: Annotated[str, Field(examples=["profile.agent-dev"])]
    strategy: str
    isolation: Annotated[str, Field(description="The least that is needed.", examples=["strong"])]
    isolation_since: Annotated[str | None, Field(description="Why more is needed than the profile says.")] = (
        None
    )
    considered: list[Considered]
