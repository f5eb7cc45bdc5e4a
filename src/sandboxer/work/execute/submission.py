"""A submission is what a caller wants to run, and a plan is what follows from it: language, image, commands.
Pure functions.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from sandboxer.backends.contract import VolumeMount
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.requests import CreateRequest, Origin, WantedResources, WantedSandbox
from sandboxer.work.execute.artifacts import MAX_MARKS, has_too_many_marks
from sandboxer.work.languages import Commands, ImageOf, Language, commands, find_language, smallest_image
from sandboxer.work.lines import WORKSPACE

TTL_DEFAULT_S = 60
TTL_MAX_S = 900
OUTPUT_LIMIT = 1024 * 1024
# The most that code, stdin and input files may have together, which is what one signed body can carry.
MAX_INPUT_BYTES = 8 * 1024 * 1024
MAX_FILES = 256
# The sandbox outlives its program by this time so that files can be read; its TTL ends it if nothing else
# does.
SPARE_S = 60
# Compilers and virtual machines need more than a small interpreter does.
LANGUAGES_PROFILE = "profile.languages"
_NAME = re.compile(r"[^\x00]{1,1024}")
_VERSION = re.compile(r"[0-9.]+$")


@value_class
class InputFile:
    """A file to write before the run; `name` is relative to the working folder."""

    name: str
    data: bytes


@value_class
class Submission(WantedSandbox):
    """What a caller wants to run. A field that is None is decided by the language or its profile."""

    code: str
    language: str | None = None
    argv: tuple[str, ...] = ()
    stdin: bytes | None = None
    files: tuple[InputFile, ...] = ()
    ttl_s: int = TTL_DEFAULT_S
    vcpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    image: str | None = None
    # The disk of that image, where it is a published one: it was checked that the caller may use it.
    origin: Origin | None = None
    # Names and patterns of files to bring back from the working folder.
    artifacts: tuple[str, ...] = ()
    # Bytes kept of each stream.
    output_limit: int = OUTPUT_LIMIT


@value_class
class Plan:
    submission: Submission
    language: Language
    commands: Commands
    create: CreateRequest

    @property
    def run(self) -> tuple[str, ...]:
        return (*self.commands.run, *self.submission.argv)


def make_plan(submission: Submission, image_of: ImageOf = smallest_image) -> Plan:
    """Returns the plan. `image_of` says which image to run a language in if not every image has it.

    Raises InvalidRequest that names the field: an unknown language (and the nearest known one), a bad file
    name.
    """
    language = language_of(submission.code, submission.language)
    filled = commands(language, WORKSPACE)
    _check_size(submission)
    for number, file in enumerate(submission.files):
        check_name(file.name, field=f"files.{number}.name")
        if f"{WORKSPACE}/{file.name}" == filled.file:
            raise InvalidRequest(
                field=f"files.{number}.name", why=f"{file.name!r} is where the code itself goes"
            )
    for number, name in enumerate(submission.artifacts):
        check_name(name, field=f"artifacts.{number}")
        if has_too_many_marks(name):
            raise InvalidRequest(field=f"artifacts.{number}", why=f"more than {MAX_MARKS} `*` and `[` in it")
    return Plan(
        submission=submission,
        language=language,
        commands=filled,
        create=_create(submission, language, image_of),
    )


def completed(plan: Plan, create: CreateRequest) -> Plan:
    """Returns the plan with what its image was found to be, which a job keeps until it starts."""
    resources = create.resources
    submission = replace(
        plan.submission,
        profile=create.profile,
        image=create.image,
        origin=create.origin,
        env=create.env,
        vcpus=resources.vcpus,
        memory_mb=resources.memory_mb,
        disk_mb=resources.disk_mb,
    )
    return replace(plan, submission=submission, create=create)


def check_name(name: str, *, field: str) -> None:
    """Raises InvalidRequest for a name that leaves the working folder."""
    parts = name.split("/")
    if _NAME.fullmatch(name) is None or any(part in ("", ".", "..") for part in parts):
        raise InvalidRequest(field=field, why="it must be a relative path without empty, `.` or `..` parts")


def shebang_language(code: str) -> str | None:
    """Returns the program that the first line names, as in `#!/usr/bin/env python3`; None without such a
    line.
    """
    if not code.startswith("#!"):
        return None
    if (words := code[2:].split("\n", 1)[0].split()) and words[0].rsplit("/", 1)[-1] == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0].rsplit("/", 1)[-1] if words else None


def language_of(code: str, given: str | None) -> Language:
    """Returns the language that was named, or else the one that the first line of the code names."""
    if given is not None:
        return find_language(given)
    if (named := shebang_language(code)) is None:
        raise InvalidRequest(
            field="language", why="name one, or begin the code with a line like `#!/usr/bin/env python3`"
        )
    try:
        return find_language(named)
    except InvalidRequest:
        # For python3.11 or lua5.4: the name without its version.
        if (plain := _VERSION.sub("", named)) and plain != named:
            return find_language(plain)
        raise


def _check_size(submission: Submission) -> None:
    if len(submission.files) > MAX_FILES:
        raise InvalidRequest(field="files", why=f"more than {MAX_FILES} of them")
    total = len(submission.code.encode("utf-8", "surrogatepass")) + len(submission.stdin or b"")
    total += sum(len(file.data) for file in submission.files)
    if total > MAX_INPUT_BYTES:
        raise InvalidRequest(
            field="files", why=f"code, stdin and files are more than {MAX_INPUT_BYTES} bytes together"
        )


def _create(submission: Submission, language: Language, image_of: ImageOf) -> CreateRequest:
    profile, image = submission.profile, submission.image
    if profile is None and not language.in_base:
        profile, image = LANGUAGES_PROFILE, image or image_of(language)
    return CreateRequest(
        profile=profile,
        image=image,
        trust=submission.trust,
        network=submission.network,
        ttl=f"{submission.ttl_s + SPARE_S}s",
        resources=WantedResources(
            vcpus=submission.vcpus, memory_mb=submission.memory_mb, disk_mb=submission.disk_mb
        ),
        env=submission.env,
        volumes=submission.volumes,
        origin=submission.origin,
        consumer={"kind": "execute", "language": language.name},
    )


def to_json(submission: Submission) -> dict[str, Any]:
    """Returns the submission as it is stored in the record of a job."""
    return {
        "code": submission.code,
        "language": submission.language,
        "argv": list(submission.argv),
        "stdin": None if submission.stdin is None else base64.b64encode(submission.stdin).decode(),
        "files": [[file.name, base64.b64encode(file.data).decode()] for file in submission.files],
        "env": dict(submission.env),
        "trust": submission.trust,
        "network": submission.network,
        "ttl_s": submission.ttl_s,
        "vcpus": submission.vcpus,
        "memory_mb": submission.memory_mb,
        "disk_mb": submission.disk_mb,
        "profile": submission.profile,
        "image": submission.image,
        "origin": None if submission.origin is None else asdict(submission.origin),
        "volumes": [[one.volume_id, one.path, one.is_read_only] for one in submission.volumes],
        "artifacts": list(submission.artifacts),
        "output_limit": submission.output_limit,
    }


def from_json(kept: Mapping[str, Any]) -> Submission:
    stdin, origin = kept["stdin"], kept.get("origin")
    return Submission(
        **{
            **kept,
            "argv": tuple(kept["argv"]),
            "stdin": None if stdin is None else base64.b64decode(stdin),
            "files": tuple(InputFile(name=n, data=base64.b64decode(data)) for n, data in kept["files"]),
            "artifacts": tuple(kept["artifacts"]),
            "origin": None if origin is None else Origin(**origin),
            # Jobs that an older server queued have none.
            "volumes": tuple(
                VolumeMount(volume_id=id_, path=path, is_read_only=only)
                for id_, path, only in kept.get("volumes", ())
            ),
        }
    )
