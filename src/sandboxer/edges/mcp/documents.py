"""What hosts can read without calling a tool (files, logs, jobs), and the prompts that people choose."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types

from sandboxer.sdk.aio.line import AsyncLine, server_events
from sandboxer.sdk.aio.tools import AsyncTools
from sandboxer.sdk.calls import platform, processes, services
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.tools import Gathering, ToolResult

GUIDE = "sandboxer://llms.txt"
_JSON, _TEXT = "application/json", "text/plain"
_LISTED = 50


class NoSuchResource(SdkError):
    """There is no resource at this address."""

    code = "no_such_resource"
    next_step = "List the templates of resources."


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of resource: its address, and what it shows."""

    uri: str
    name: str
    description: str
    mime_type: str | None

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Returns the names in an address of this kind; None if it is of another."""
        pattern = re.sub(r"{\+(\w+)}", r"(?P<\1>.*)", self.uri)
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", pattern), uri)
        return None if found is None else {name: unquote(word) for name, word in found.groupdict().items()}


FILE = Template(
    "sandboxer://sandboxes/{sandbox_id}/files/{+path}",
    "file",
    "A file of a sandbox, by its absolute path without the first slash; with a slash at its end a folder",
    None,
)
OUTPUT = Template(
    "sandboxer://sandboxes/{sandbox_id}/processes/{process_id}/output",
    "process output",
    "What a background process has printed, as far as it is kept",
    _TEXT,
)
LOG = Template(
    "sandboxer://services/{service}/logs", "service log", "The last lines of a service's log", _TEXT
)
JOB = Template("sandboxer://jobs/{job_id}", "job", "A job, and what it has printed so far", _JSON)
TEMPLATES = (FILE, OUTPUT, LOG, JOB)


class Documents:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line
        self._tools = AsyncTools(line)

    def templates(self) -> types.ListResourceTemplatesResult:
        made = [
            types.ResourceTemplate(
                name=one.name,
                uri_template=one.uri,
                description=f"{one.description}.",
                mime_type=one.mime_type,
            )
            for one in TEMPLATES
        ]
        return types.ListResourceTemplatesResult(resource_templates=made)

    async def listed(self) -> types.ListResourcesResult:
        """Returns the guide, the home folder of each sandbox, and the log of each service."""
        found = [
            types.Resource(name="guide", uri=GUIDE, mime_type=_TEXT, description="What this platform is.")
        ]
        for one in await self._all("listSandboxes", "sandboxes"):
            uri = f"sandboxer://sandboxes/{one['id']}/files/"
            found.append(
                types.Resource(name=f"files of {one['name'] or one['id']}", uri=uri, mime_type=_JSON)
            )
        for one in await self._all("listServices", "services"):
            uri = f"sandboxer://services/{quote(one['id'])}/logs"
            found.append(_resource(f"log of {one['name']}", uri, _TEXT))
        return types.ListResourcesResult(resources=found)

    async def _all(self, tool: str, what: str) -> list[dict[str, Any]]:
        result = await self._tools.run(tool, {"limit": _LISTED})
        # A stranger has none.
        return [] if result.structured is None else list(result.structured.get(what, ()))

    async def read(self, uri: str) -> types.ReadResourceResult:
        """Raises NoSuchResource, and whatever the platform refuses."""
        if uri == GUIDE:
            text = (await self._line.send(platform.get_llms_text())).decode()
            return types.ReadResourceResult(
                contents=[types.TextResourceContents(uri=uri, mime_type=_TEXT, text=text)]
            )
        readers: tuple[tuple[Template, Callable[[Mapping[str, str]], Awaitable[ToolResult]]], ...] = (
            (FILE, self._file),
            (OUTPUT, self._output),
            (LOG, self._log),
            (JOB, lambda names: self._tools.run("getJob", names)),
        )
        for template, read in readers:
            if (names := template.match(uri)) is not None:
                return _contents(uri, template, names, await read(names))
        raise NoSuchResource(f"There is nothing at {uri[:200]!r}.")

    async def _file(self, names: Mapping[str, str]) -> ToolResult:
        where = {"sandbox_id": names["sandbox_id"], "path": "/" + names["path"]}
        if where["path"].endswith("/"):
            return await self._tools.run("listFiles", {**where, "path": where["path"].rstrip("/") or "/"})
        return await self._tools.run("readFile", where)

    async def _log(self, names: Mapping[str, str]) -> ToolResult:
        page = await self._line.send(services.read_service_logs(names["service"], tail=1000))
        return ToolResult("\n".join(line.text for line in page.lines))

    async def _output(self, names: Mapping[str, str]) -> ToolResult:
        gathering, told = Gathering(), []
        call = processes.attach_process(names["sandbox_id"], names["process_id"], follow=False)
        async for event in server_events(self._line, call):
            told.append(gathering.feed(event) or "")
        return ToolResult("".join(told))

    def prompts(self) -> types.ListPromptsResult:
        made = [
            types.Prompt(
                name=name,
                description=one.description,
                arguments=[types.PromptArgument(name=word, required=True) for word in one.arguments],
            )
            for name, one in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=made)

    def prompt(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Raises KeyError with what is missing: the prompt, or an argument of it."""
        if name not in PROMPTS:
            raise KeyError(f"prompt {name[:80]!r}")
        chosen = PROMPTS[name]
        for word in chosen.arguments:
            if word not in arguments:
                raise KeyError(f"argument {word!r}")
        text = chosen.text
        for word in chosen.arguments:
            text = text.replace(f"<{word}>", arguments[word])
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=chosen.description, messages=[message])


def _resource(name: str, uri: str, mime_type: str) -> types.Resource:
    return types.Resource(name=name, uri=uri, mime_type=mime_type)


def _contents(
    uri: str, template: Template, names: Mapping[str, str], result: ToolResult
) -> types.ReadResourceResult:
    if result.is_error:
        raise _Refused(result)
    kind = template.mime_type
    if kind is None:
        kind = _JSON if uri.endswith("/") else mimetypes.guess_type(names["path"])[0]
    made: types.TextResourceContents | types.BlobResourceContents
    if result.content is not None and result.structured is not None:
        blob = str(result.structured["content"])
        made = types.BlobResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=blob)
    else:
        made = types.TextResourceContents(uri=uri, mime_type=kind or _TEXT, text=result.text)
    return types.ReadResourceResult(contents=[made])


class _Refused(SdkError):
    """A resource could not be read, for the reason that its tool says."""

    def __init__(self, result: ToolResult) -> None:
        said = result.structured or {}
        super().__init__(str(said.get("detail", result.text)), next_step=str(said.get("next_step", "")))
        self.code = str(said.get("code", "refused"))


@dataclass(frozen=True, slots=True)
class Prompt:
    description: str
    arguments: tuple[str, ...]
    text: str


PROMPTS: Mapping[str, Prompt] = {
    "run": Prompt(
        "Run a program in a sandbox and explain what came of it.",
        ("program",),
        "Run this with the tool `execute` (choose the language by reading it), then say in a few sentences"
        " what it printed and whether that is what it should:\n\n<program>",
    ),
    "work": Prompt(
        "Do a piece of work in a sandbox of its own.",
        ("task",),
        "Make a sandbox with `createSandbox`, do the following in it with `runCommand`, `writeFile` and"
        " `readFile`, check your work by running it, show me the result, and end the sandbox with"
        " `destroySandbox` unless I say that I want to keep it.\n\n<task>",
    ),
    "look-into-service": Prompt(
        "Find out why a service is not well.",
        ("service",),
        "Look at the service <service> with `getService` and `getServiceLogs`, run commands in it with"
        " `executeInService` where that helps, and tell me what is wrong and what you would change."
        " Change nothing before I agree.",
    ),
    "try-two-ways": Prompt(
        "Try two ways from the same state, side by side.",
        ("sandbox", "first", "second"),
        "Take a snapshot of the sandbox <sandbox> with `createSnapshot`, make two sandboxes from it with"
        " `cloneSnapshot`, try this in one: <first>\nand this in the other: <second>\nThen compare what"
        " came of both, tell me which you would keep, and end the other.",
    ),
}
