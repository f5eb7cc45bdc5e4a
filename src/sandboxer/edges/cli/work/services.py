"""`service`: processes with a name and an address, kept running.

`service freeze|thaw|stop|start|lock|unlock`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.options import (
    Cpus,
    DespiteFindings,
    Disk,
    InState,
    Json,
    Memory,
    NetworkOption,
    VolumeOption,
    duration,
    inspecting,
    mounts,
    pairs,
)
from sandboxer.edges.cli.output import ago, columns, err, plain
from sandboxer.edges.cli.verbs import Answer, Row, group, noun, rows, show_pieces, verb
from sandboxer.edges.cli.work.service_settings import (
    Ref,
    changed,
    domain,
    env,
    files_in,
    health_of,
    print_line,
    show_service,
    state_of,
)
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.services import Services

app = group("Processes with a name and an address, kept running.")
groups = {"service": app}
Bootstrap = Annotated[
    Path | None,
    typer.Option(help="A script that is the service.", metavar="FILE", exists=True, dir_okay=False),
]
Command = Annotated[str | None, typer.Option("--command", help="Text for a shell, instead of a script.")]
FilesIn = Annotated[
    list[str] | None,
    typer.Option("--file", help="LOCAL or LOCAL:PATH; written below /workspace. Repeatable.", metavar="FILE"),
]
Env = Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; can be repeated.")]
Port = Annotated[int | None, typer.Option(help="Where it listens, if not on $PORT.")]
HealthPath = Annotated[
    str | None, typer.Option("--health", help="A path that must answer 200 to 399.", metavar="PATH")
]
StartTimeout = Annotated[
    float | None, duration("--start-timeout", words="How long a new process may take to become healthy.")
]
Policy = Annotated[str | None, typer.Option("--restart", help="always, on-failure or never.")]
Idle = Annotated[float | None, duration("--idle", words="Sleep after so long without a request; 0: never.")]
Wake = Annotated[bool | None, typer.Option("--wake/--no-wake", help="Does a request wake it?")]
Public = Annotated[bool | None, typer.Option("--public/--private", help="May anyone reach it?")]
app.add_typer(env, name="env")
app.add_typer(domain, name="domain")


@verb(app, "create", wait="starting …")
def create(
    platform: Sandboxer,
    name: Annotated[str, typer.Argument(help="A DNS label, unique in the account.")],
    bootstrap: Bootstrap = None,
    command: Command = None,
    file: FilesIn = None,
    variables: Env = None,
    secret: Annotated[
        list[str] | None, typer.Option("--secret", help="NAME=VALUE, sealed at rest. Repeatable.")
    ] = None,
    port: Port = None,
    health: HealthPath = None,
    start_timeout: StartTimeout = None,
    restart: Policy = None,
    idle: Idle = None,
    wake: Wake = None,
    public: Public = None,
    snapshot: Annotated[str | None, typer.Option(help="Begin as a copy of this snapshot.")] = None,
    image: Annotated[str | None, typer.Option(help="Image of its sandbox.")] = None,
    network: NetworkOption = None,
    profile: Annotated[str | None, typer.Option(help="Profile of its sandbox.")] = None,
    vcpus: Cpus = None,
    memory_mb: Memory = None,
    disk_mb: Disk = None,
    volume: VolumeOption = None,
    despite_findings: DespiteFindings = False,
) -> object:
    """Make a service, and wait until it is healthy.

    A public one is not made where everyone inside may read secrets or git folders.

    Examples:

        sandboxer service create web --command 'python3 -m http.server $PORT'

        sandboxer service create api --file app.py --command 'python3 app.py'

        sandboxer service create db --bootstrap db.sh --volume db-data:/var/lib/db
    """
    asked = {"vcpus": vcpus, "memory_mb": memory_mb, "disk_mb": disk_mb}
    sizes = {key: value for key, value in asked.items() if value is not None}
    made = platform.services.create(
        name,
        bootstrap=None if bootstrap is None else bootstrap.read_text(),
        command=command,
        files=files_in(file),
        env=pairs(variables, "--env") or None,
        secrets=pairs(secret, "--secret") or None,
        port=port,
        health=health_of(health, start_timeout),
        restart=None if restart is None else {"policy": restart},
        idle_s=idle,
        wake=wake,
        public=public,
        image=image,
        network=network,
        snapshot=snapshot,
        profile=profile,
        resources=sizes or None,
        volumes=mounts(volume) or None,
        inspect=inspecting(public, despite_findings) if public else None,
    )
    return changed(made)


@verb(app, "list")
def listed(platform: Sandboxer, state: InState = None) -> Answer:
    """List services, newest first.

    Examples:

        sandboxer service list --state sleeping
    """
    found = list(platform.services.list(state=state))
    rows = [
        (one.name, state_of(one), ago(one.state_since), one.url or one.host, one.run, one.sandbox_id)
        for one in found
    ]
    table = columns(rows, "NAME", "STATE", "SINCE", "ADDRESS", "RUN", "SANDBOX")
    return Answer(found, table, make="service create NAME")


@verb(app, "show")
def show(
    platform: Sandboxer,
    service: Ref,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the address alone.")] = False,
) -> object:
    """Show one service.

    Examples:

        sandboxer service show hello

        curl "$(sandboxer service show hello -q)/"
    """
    found = platform.services.get(service)
    return Answer(found, plain(found.url or found.host), soft_wrap=True) if quiet else show_service(found)


@verb(app, "logs")
def logs(
    platform: Sandboxer,
    service: Ref,
    tail: Annotated[int, typer.Option("--tail", "-n", min=0, max=10_000, help="How many last lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    json: Json = False,
) -> None:
    """Show what it printed, its former processes included.

    Examples:

        sandboxer service logs hello -f
    """
    source = platform.services.follow if follow else platform.services.logs
    show_pieces(source(service, tail=tail), print_line, is_json=json, is_endless=follow)


@verb(app, "redeploy", wait="waiting for the new process to be well …")
def redeploy(
    platform: Sandboxer,
    service: Ref,
    bootstrap: Bootstrap = None,
    command: Command = None,
    file: FilesIn = None,
    variables: Env = None,
) -> object:
    """Replace its program, files or environment; the old process goes on until the new one is healthy.

    Examples:

        sandboxer service redeploy hello --file app.py
    """
    try:
        done = platform.services.redeploy(
            service,
            bootstrap=None if bootstrap is None else bootstrap.read_text(),
            command=command,
            files=files_in(file),
            env=pairs(variables, "--env") or None,
        )
    except ApiError as error:
        if printed := error.fact("log"):
            err.print(plain(f"The new process printed:\n{printed}"), style="dim")
        raise
    return changed(done)


@verb(app, "update")
def change(
    platform: Sandboxer,
    service: Ref,
    variables: Env = None,
    port: Annotated[int | None, typer.Option(help="Where it listens; 0: on $PORT.")] = None,
    health: HealthPath = None,
    start_timeout: StartTimeout = None,
    restart: Policy = None,
    idle: Idle = None,
    wake: Wake = None,
    public: Public = None,
    vcpus: Annotated[
        int | None, typer.Option("--cpus", help="CPUs in all, at once; 0: as it was made.")
    ] = None,
    despite_findings: DespiteFindings = False,
) -> object:
    """Change how it is kept; what is left out stays.

    It is not opened to all where everyone inside may read secrets or git folders.

    Examples:

        sandboxer service update hello --idle 10m --public
    """
    had = platform.services.get(service)
    checks, policy = health_of(health, start_timeout), {"policy": restart}
    return changed(
        platform.services.change(
            service,
            env=pairs(variables, "--env") or None,
            port=port,
            health=None if checks is None else {**had.health.model_dump(), **checks},
            restart=None if restart is None else {**had.restart.model_dump(), **policy},
            idle_s=idle,
            wake=wake,
            public=public,
            vcpus=vcpus,
            inspect=inspecting(public, despite_findings) if public else None,
        )
    )


@verb(app, "delete", may_need_proof=True)
def remove(platform: Sandboxer, service: Ref) -> Answer:
    """Remove it with its sandbox, its disk and its log.

    Examples:

        sandboxer service delete hello
    """
    removed = platform.services.remove(service)
    return Answer(removed, plain(f"removed {removed.name}"))


rows(
    app,
    noun("services"),
    {"service": Ref},
    changed,
    Row("freeze", Services.freeze, "Put it to sleep now.", "service freeze hello", wait="freeze …"),
    Row("thaw", Services.thaw, "Wake it.", "service thaw hello", wait="thaw …"),
    Row(
        "stop",
        Services.stop,
        "End its process and stop its sandbox; the disk is kept.",
        "service stop hello",
        wait="stop …",
    ),
    Row(
        "start",
        Services.start,
        "Start what was stopped, has failed, or was given up.",
        "service start hello",
        wait="start …",
    ),
    Row(
        "lock",
        Services.lock,
        "Guard it by a second proof: removing and unlocking it then need the account's other factor.",
        "service lock hello",
        wait="lock …",
    ),
    Row(
        "unlock",
        Services.unlock,
        "Take that guard away, with a second proof.",
        "service unlock hello --wallet ~/.wallet.key",
        may_need_proof=True,
        wait="unlock …",
    ),
)
