"""E2B's templates: builds are asked for, files of their steps are sent, and they are followed until they are
over; then the template is an image of ours with tags.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.responses import Response

from sandboxer.access.ports.ports import without_port
from sandboxer.artifacts.clones import is_image_id
from sandboxer.artifacts.images.builders.steps import OURS, Step, Template
from sandboxer.artifacts.images.builders.templates import Build, Line
from sandboxer.artifacts.images.builders.use_cases import READY, START, Source
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.edges.e2b.answers import (
    DEFAULT_TAG,
    INTERPRETER,
    PROFILE,
    SNAPSHOT,
    TEMPLATE,
    TEMPLATES,
    answer,
)
from sandboxer.edges.e2b.users import DEFAULT, HOME
from sandboxer.edges.http.answers import printable
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, bind
from sandboxer.edges.http.demands import pass_gate
from sandboxer.edges.http.matcher import is_of_host
from sandboxer.edges.http.routes.work.files import body_of
from sandboxer.edges.http.sandbox_tokens import TEMPLATE_PLACE
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import InvalidRequest, NotFound, Unavailable
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import WantedResources
from sandboxer.wire.e2b import API_LABEL, ROOT, control, operations
from sandboxer.wiring import Platform
from sandboxer.work.exec import Run
from sandboxer.work.lines import Wanted

_TAG = DEFAULT_TAG.removeprefix(":")
# Images of E2B, and the templates that they are.
_BASES = {name: name for name in TEMPLATES} | {
    "e2bdev/base": TEMPLATE,
    "e2bdev/code-interpreter": INTERPRETER,
}
_READY_S = 60.0
_UNKNOWN_USER = re.compile(r"no user .* in the sandbox")
# What stands for no condition: where such templates come from, it is waited for once, when they are built.
_SLEEP = re.compile(r"\s*sleep [0-9.]+\s*")
_SHELL = 'command -v bash >/dev/null || exec sh -c "$0" "$@"; exec bash -lc "$0" "$@"'
_UNTIL = 'until sh -c "$0" >/dev/null 2>&1; do sleep 0.1; done'


async def request_build(asked: AskedBody[control.NewTemplate]) -> Response:
    body = asked.body
    name, _, tag = (body.name or body.alias or "").lower().partition(":")
    if not name or name in TEMPLATES or name.startswith((SNAPSHOT, "img_", "sbx")):
        raise InvalidRequest(field="name", why=f"{name!r} cannot be the name of a template")
    await pass_gate(asked.request, PROFILE)
    tags = list(dict.fromkeys([*([tag] if tag else []), *body.tags])) or [_TAG]
    resources = WantedResources(vcpus=body.cpu_count, memory_mb=body.memory_mb)
    build = asked.platform.artifacts.templates.request(name, tags, resources, asked.caller)
    shown = control.TemplateRequested.model_construct(
        template_id=name, build_id=build.id, public=False, aliases=[name], names=[name], tags=tags
    )
    return answer(shown, 202)


async def ask_upload(asked: Asked[operations.FilesPath]) -> Response:
    """Says where to send files of a step: an address that a token opens, for nothing else."""
    name, lot, host = asked.path.template_id, asked.path.files_hash, asked.request.headers.get("host", "")
    token = asked.platform.sandbox_tokens.of(asked.caller, TEMPLATE_PLACE + name)
    is_api = without_port(host).startswith(f"{API_LABEL}.")
    scheme = "https" if is_api else asked.request.url.scheme
    url = f"{scheme}://{host}{ROOT}/templates/{name}/files/{lot}?token={token}"
    present = asked.platform.artifacts.templates.has_files(lot, asked.caller)
    return answer(control.FileUpload.model_construct(present=present, url=url), 201)


async def upload(asked: Asked[operations.FilesPath, operations.UploadQuery]) -> Response:
    templates, chunks = asked.platform.artifacts.templates, body_of(asked.request)
    await templates.keep_files(asked.path.files_hash, chunks, asked.caller)
    return Response(status_code=204)


async def start_build(asked: AskedPathBody[operations.BuildPath, control.BuildTemplate]) -> Response:
    templates, body = asked.platform.artifacts.templates, asked.body
    build = templates.get(asked.path.build_id, asked.path.template_id, asked.caller)
    base, login = await _base(asked.platform, asked.caller, body)
    template = Template(
        base=base,
        profile=PROFILE,
        login=login,
        steps=[Step(kind=one.type, args=tuple(one.args), files=one.files_hash) for one in body.steps],
        start=body.start_cmd,
        ready=body.ready_cmd,
        cached=not (body.force or any(one.force for one in body.steps)),
    )
    templates.start(build, template, asked.caller)
    return Response(status_code=202)


def image_of(platform: Platform, name: str) -> str:
    """Returns the image of this host that a template of E2B's stands for: the base image, if the one for the
    code interpreter was not built.
    """
    return name if name == TEMPLATE or is_of_host(platform, name) else TEMPLATE


async def _base(platform: Platform, caller: Caller, body: control.BuildTemplate) -> tuple[str, Source | None]:
    """Returns what the template begins with, as in `FROM`, and how to ask the registry for it."""
    if body.from_template is not None:
        if (name := body.from_template.removesuffix(DEFAULT_TAG)) in TEMPLATES:
            return OURS + image_of(platform, name), None
        found = await tagged(platform, body.from_template, caller)
        if found is None and ":" in body.from_template:
            raise NotFound(what="template", id=body.from_template)
        return OURS + (body.from_template if found is None else found.id), None
    image = (body.from_image or TEMPLATE).strip()
    if name := _BASES.get(image.removesuffix(":latest"), ""):
        return OURS + image_of(platform, name), None
    if any(char.isspace() for char in image) or image.startswith("-"):
        raise InvalidRequest(field="fromImage", why=f"{image!r} is no name of an image")
    login = body.from_image_registry
    if login is None:
        return image, None
    if login.type != "registry" or login.username is None or login.password is None:
        why = f"of a registry of type {login.type!r} nothing is known here; user and password are"
        raise InvalidRequest(field="fromImageRegistry", why=why)
    return image, Source(reference=image, credentials=(login.username, login.password.get_secret_value()))


async def status(asked: Asked[operations.BuildPath, operations.StatusQuery]) -> Response:
    query, templates = asked.query, asked.platform.artifacts.templates
    build = templates.get(asked.path.build_id, asked.path.template_id, asked.caller)
    await templates.follow(build)
    shown = control.BuildState.model_construct(
        template_id=build.name,
        build_id=build.id,
        status=build.status,
        logs=[],
        log_entries=_lines(build.lines[query.logs_offset : query.logs_offset + query.limit]),
        reason=_reason(build),
    )
    return answer(shown)


def _reason(build: Build) -> control.BuildReason | None:
    if build.status != "error":
        return None
    message = _unknown_user(build) or printable(build.reason)
    return control.BuildReason.model_construct(message=message, step=build.step or None, log_entries=[])


def _unknown_user(build: Build) -> str | None:
    """Says in E2B's words that nobody of the name of a step's user is in the image."""
    step = build.steps[int(build.step) - 1] if build.step.isdigit() else None
    if step is None or step.kind != "RUN" or len(step.args) < 2 or not _UNKNOWN_USER.search(build.reason):
        return None
    said = f"failed to run command '{step.args[0]}': command failed: unauthenticated: invalid username"
    return printable(f"{said}: '{step.args[1]}'")


def _lines(lines: Sequence[Line]) -> list[control.BuildLine]:
    return [
        control.BuildLine.model_construct(timestamp=one.at, message=printable(one.text), level="info")
        for one in lines
    ]


async def find(asked: Asked[operations.TemplatePath]) -> Response:
    name = asked.path.template_id
    if name.removesuffix(DEFAULT_TAG) not in TEMPLATES:
        await _known(asked.platform, name, asked.caller)
    return answer(control.KnownTemplate.model_construct(template_id=name.partition(":")[0], public=False))


async def list_tags(asked: Asked[operations.TemplatePath]) -> Response:
    images = await _known(
        asked.platform, asked.path.template_id.partition(":")[0], asked.caller, any_tag=True
    )
    marks = [(tag, mark) for image in images for tag, mark in image.tags.items()]
    return answer(
        [
            control.TemplateTag.model_construct(tag=tag, build_id=mark.build_id, created_at=mark.at)
            for tag, mark in sorted(marks, key=lambda one: one[1].at, reverse=True)
        ]
    )


async def assign_tags(asked: AskedBody[control.TagTemplate]) -> Response:
    (image,) = await _known(asked.platform, asked.body.target, asked.caller)
    build_id = next(iter(image.tags.values())).build_id
    await asked.platform.artifacts.images.tag(image, asked.body.tags, build_id, asked.caller)
    return answer(control.TaggedTemplate.model_construct(build_id=build_id, tags=asked.body.tags), 201)


async def remove_tags(asked: AskedBody[control.UntagTemplate]) -> Response:
    name = asked.body.name.partition(":")[0]
    for image in await _known(asked.platform, name, asked.caller, any_tag=True):
        await asked.platform.artifacts.images.untag(image, asked.body.tags, asked.caller)
    return Response(status_code=204)


async def tagged(platform: Platform, text: str, caller: Caller) -> PublishedImage | None:
    """Returns the image that a name, with a tag or without, means as the caller's own template."""
    name, _, tag = text.partition(":")
    found = await platform.artifacts.images.tagged(name.lower(), caller)
    return next((image for image in found if (tag or _TAG) in image.tags), None)


async def _known(
    platform: Platform, text: str, caller: Caller, *, any_tag: bool = False
) -> Sequence[PublishedImage]:
    """Returns the image that a name with a tag means, or all images of the name. Raises NotFound."""
    if any_tag:
        found = await platform.artifacts.images.tagged(text.lower(), caller)
    else:
        one = await tagged(platform, text, caller)
        found = [] if one is None else [one]
    if not found:
        raise NotFound(what="template", id=text)
    return found


async def begin(platform: Platform, record: Sandbox, caller: Caller, lease: Lease) -> None:
    """Starts what the template of a sandbox says, whenever its processes begin anew, and waits until that is
    ready. Raises Unavailable if it does not become so.
    """
    image = (
        await platform.artifacts.images.repository.find(record.image) if is_image_id(record.image) else None
    )
    labels = {} if image is None else image.config.get("Labels") or {}
    if start := labels.get(START):
        await platform.work.processes.start(record.id, caller, _shell(start))
    ready = labels.get(READY)
    if not ready or _SLEEP.fullmatch(ready):
        return
    run = Run(wanted=_shell(_UNTIL, ready), timeout_s=_READY_S, output_limit=0)
    if (await platform.work.exec.run(record.id, caller, run, lease)).end.timed_out:
        raise Unavailable(
            why=f"what its template starts was not ready within {_READY_S:.0f} s ({ready[:200]})"
        )


async def begin_for_visitor(platform: Platform, record: Sandbox) -> None:
    """Does the same for one that a request for a port has woken."""
    caller = Caller(public_key="system:proxy", account=record.account)
    with platform.budget.lease((await platform.authorities.of(caller)).root) as lease:
        await begin(platform, record, caller, lease)


def _shell(*words: str) -> Wanted:
    return Wanted(argv=["/bin/sh", "-c", _SHELL, *words], cwd=HOME, env={"HOME": HOME}, user=DEFAULT)


BINDINGS = (
    bind(operations.NEW_TEMPLATE, request_build),
    bind(operations.ASK_UPLOAD, ask_upload),
    bind(operations.UPLOAD, upload),
    bind(operations.BUILD_TEMPLATE, start_build),
    bind(operations.BUILD_STATUS, status),
    bind(operations.FIND_TEMPLATE, find),
    bind(operations.TEMPLATE_TAGS, list_tags),
    bind(operations.TAG_TEMPLATE, assign_tags),
    bind(operations.UNTAG_TEMPLATE, remove_tags),
)
