"""The MCP server: tools, resources and prompts over the calls of one line, whichever way they travel.

It needs nothing of the platform: the stdio server runs where only the client is installed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import cache
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from sandboxer import __version__
from sandboxer.edges.mcp.documents import Documents
from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.tools import AsyncTools
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.tools import Offer, Tool, ToolResult, tool_named, tools

Context = ServerRequestContext[Any, Any]
PAYMENT, SETTLED = "x402/payment", "x402/payment-response"
INSTRUCTIONS = (
    "Sandboxes: walled Linux computers. `execute` runs code once and forgets it. For work that goes on, make"
    " one with `createSandbox`, use it by its id or name (`runCommand`, `writeFile`, `readFile`) and end it"
    " with `destroySandbox`. `createSession` keeps an interpreter's variables. A result with isError says"
    " what to do next; one with `accepts` wants a payment by x402."
)
# Output is told in pieces of at least this time, so that a chatty program does not drown its host.
TELL_EVERY_S = 0.1
LONGEST_PIECE = 4096


class ToolServer:
    """Answers MCP by a line to a platform.

    `offer_of` says which tools a request is offered, `within` wraps the work of each request, and `finish`
    has the last word on a tool's result.
    """

    def __init__(
        self,
        line: AsyncLine,
        *,
        offer_of: Callable[[Context], Offer],
        within: Callable[[Context], AbstractContextManager[object]] = lambda _: nullcontext(),
        finish: Callable[[ToolResult], Awaitable[ToolResult]] | None = None,
    ) -> None:
        self._tools = AsyncTools(line)
        self._documents = Documents(line)
        self._offer_of = offer_of
        self._within = within
        self._finish = finish
        self.server: Server[Any] = Server(
            "sandboxer",
            version=__version__,
            title="sandboxer",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listed(self._offer_of(context))

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = None if params.meta is None else dict(params.meta).get(PAYMENT)
        payment = None if given is None else base64.b64encode(json.dumps(given).encode()).decode()
        with self._within(context):
            async with _telling(context) as tell:
                result = await self._tools.run(params.name, params.arguments, on_output=tell, payment=payment)
            if self._finish is not None:
                result = await self._finish(result)
        return shown(result, params.arguments or {})

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with self._within(context):
            return await self._documents.listed()

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return self._documents.templates()

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        with self._within(context):
            try:
                return await self._documents.read(str(params.uri))
            except SdkError as error:
                facts = {"uri": str(params.uri), "code": error.code, "nextStep": error.next_step}
                raise MCPError(types.INVALID_PARAMS, str(error), facts) from None

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return self._documents.prompts()

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        try:
            return self._documents.prompt(params.name, params.arguments or {})
        except KeyError as missing:
            raise MCPError(types.INVALID_PARAMS, f"There is no {missing.args[0]}.") from None


class _Telling:
    """Tells the caller of output while it comes, a few times a second."""

    def __init__(self, context: Context) -> None:
        self._session = context.session
        self._pieces: list[str] = []
        self._came = asyncio.Event()
        self._count = 0

    def take(self, piece: str) -> None:
        self._pieces.append(piece)
        self._came.set()

    async def run(self) -> None:
        while True:
            await self._came.wait()
            await self.tell()
            await asyncio.sleep(TELL_EVERY_S)

    async def tell(self) -> None:
        self._came.clear()
        text = "".join(self._pieces)
        self._pieces.clear()
        self._count += len(text)
        if text:
            await self._session.report_progress(float(self._count), message=text[-LONGEST_PIECE:])


@asynccontextmanager
async def _telling(context: Context) -> AsyncIterator[Callable[[str], None] | None]:
    """Yields what takes output; None if the caller has not asked to be told of it."""
    if context.meta is None or dict(context.meta).get("progress_token") is None:
        yield None
        return
    telling = _Telling(context)
    running = asyncio.create_task(telling.run())
    try:
        yield telling.take
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    await telling.tell()


@cache
def listed(offer: Offer) -> types.ListToolsResult:
    """Returns the tools of an offer, as MCP lists them. They change with the version of the platform only."""
    return types.ListToolsResult(
        tools=[_listed(tool) for tool in tools(offer)], ttl_ms=300_000, cache_scope="public"
    )


def _listed(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=f"{tool.description}.",
        input_schema=dict(tool.schema),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_read_only,
            destructive_hint=tool.is_lossy,
            idempotent_hint=tool.is_repeatable,
            open_world_hint=tool.is_open,
        ),
    )


def _schema(name: str) -> Mapping[str, Any] | None:
    try:
        return tool_named(name).schema
    except SdkError:
        return None


def shown(result: ToolResult, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """Returns a result as MCP has it; what is to be paid as x402 has it there."""
    if result.payment is not None:
        said = dict(result.payment)
        return types.CallToolResult(
            content=[types.TextContent(text=json.dumps(said))], structured_content=said, is_error=True
        )
    meta = None
    if result.settled is not None:
        meta = {SETTLED: json.loads(base64.b64decode(result.settled))}
    content: list[Any] = [types.TextContent(text=result.text)]
    structured = None if result.structured is None else dict(result.structured)
    if result.content is not None and (picture := _picture(result.content, arguments)) is not None:
        content, structured = [picture], None
    return types.CallToolResult(
        content=content, structured_content=structured, is_error=result.is_error, _meta=meta
    )


def _picture(content: bytes, arguments: Mapping[str, Any]) -> types.ImageContent | None:
    """Returns what a model can look at, if a file is that by its name."""
    kind = mimetypes.guess_type(str(arguments.get("path", "")))[0] or ""
    if not kind.startswith("image/"):
        return None
    return types.ImageContent(data=base64.b64encode(content).decode(), mime_type=kind)
