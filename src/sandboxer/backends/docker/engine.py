"""Asks an engine, by its HTTP API. It may die in the middle, be slow, or be another version.

By httpx, and not by Docker's own client for Python: that one blocks, and has no types.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import httpx

from sandboxer.backends.docker.address import Address, Streams, Way
from sandboxer.kernel.errors import NotAvailable, Unavailable
from sandboxer.kernel.values import brief_value_class, value_class

# The API we speak: what is older lacks what we need, what is newer speaks ours.
OLDEST, NEWEST = (1, 40), (1, 51)
CALL_S = 60.0
# A head of an answer, and a message in it.
_HEAD_BYTES = 16 * 1024
_SAID = 400
_BY_TLS = {"hint": "If it hangs up, see that it knows the authority of the certificate in docker_keys."}
_ANSWER_BYTES = 16 << 20


@brief_value_class
class Answer:
    status: int
    content: Any


@value_class
class Version:
    api: tuple[int, int]
    # Its name and version, as people say it: "docker 20.10.24".
    engine: str
    is_podman: bool


def version_of(said: Any) -> Version:
    """Reads what an engine says of itself. Raises NotAvailable for one that we cannot speak with."""
    try:
        newest, oldest = _numbers(said["ApiVersion"]), _numbers(said.get("MinAPIVersion") or "1.0")
        names = [str(one["Name"]) for one in said.get("Components") or ()]
        number = str(said["Version"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotAvailable(what="ext.docker", why="what answers there is no engine") from error
    if newest < OLDEST or oldest > NEWEST:
        spoken = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        wanted = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        raise NotAvailable(what="ext.docker", why=f"the engine speaks API {spoken}, and we speak {wanted}")
    is_podman = any("podman" in name.lower() for name in names)
    engine = f"{'podman' if is_podman else 'docker'} {number}"
    return Version(api=min(newest, NEWEST), engine=engine, is_podman=is_podman)


def _numbers(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


class Engine:
    def __init__(self, way: Way, address: Address) -> None:
        self.address = address
        self._way = way
        self._client = httpx.AsyncClient(
            transport=way.transport(), base_url=way.base, timeout=httpx.Timeout(CALL_S), trust_env=False
        )
        self._version: Version | None = None

    async def version(self) -> Version:
        """Raises Unavailable, NotAvailable."""
        if self._version is None:
            said = await self._ask("GET", "/version", limit_s=CALL_S)
            self._version = version_of(said.content)
        return self._version

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: AsyncIterator[bytes] | None = None,
        length: int | None = None,
        accepts: Collection[int] = (),
        limit_s: float = CALL_S,
    ) -> Answer:
        """Returns the answer to a call. What is not a success, nor among `accepts`, raises Unavailable."""
        place = await self._place(path)
        headers = {} if content is None else {"content-type": "application/x-tar"}
        if length is not None:
            headers["content-length"] = str(length)
        return await self._ask(
            method, place, limit_s=limit_s, accepts=accepts,
            params=params, json=body, content=content, headers=headers,
        )  # fmt: skip

    async def _ask(
        self, method: str, place: str, *, limit_s: float, accepts: Collection[int] = (), **given: Any
    ) -> Answer:
        await self._way.ready()
        try:
            async with asyncio.timeout(limit_s), self._client.stream(method, place, **given) as response:
                said = await _read(response)
        except TimeoutError:
            raise self._silent(f"it said nothing for {limit_s:g} s") from None
        except (httpx.HTTPError, OSError) as error:
            raise self._silent(_words_of(error)) from error
        answer = Answer(response.status_code, _parsed(said))
        if not response.is_success and answer.status not in accepts:
            raise Unavailable(why=f"the engine refused a request ({place}): {message_of(answer)}")
        return answer

    async def events(self, params: Mapping[str, str]) -> AsyncIterator[Any]:
        """Yields what happens, from now on. Raises Unavailable once the engine goes."""
        place = await self._place("/events")
        await self._way.ready()
        try:
            limits = httpx.Timeout(CALL_S, read=None)
            async with self._client.stream("GET", place, params=params, timeout=limits) as response:
                if not response.is_success:
                    raise Unavailable(why=f"the engine tells nothing: {response.status_code}")
                async for line in response.aiter_lines():
                    if (event := _parsed(line.encode())) is not None:
                        yield event
        except (httpx.HTTPError, OSError) as error:
            raise self._silent(_words_of(error)) from error

    async def hijack(self, path: str, body: Mapping[str, Any] | None = None) -> Streams:
        """Makes a call that turns its connection into a stream of bytes. Raises Unavailable."""
        place = await self._place(path)
        sent = b"" if body is None else json.dumps(body).encode()
        head = (
            f"POST {place} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        )
        try:
            async with asyncio.timeout(CALL_S):
                reader, writer = await self._way.dial()
                try:
                    writer.write(head.encode() + sent)
                    answered = await reader.readuntil(b"\r\n\r\n")
                    status = int(answered.split(b" ", 2)[1])
                    if status not in (101, 200):
                        said = await reader.read(_HEAD_BYTES)
                        why = message_of(Answer(status, _parsed(said)))
                        raise Unavailable(why=f"the engine refused a stream ({place}): {why}")
                except BaseException:
                    writer.close()
                    raise
        except TimeoutError:
            raise self._silent(f"it said nothing for {CALL_S:g} s") from None
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise self._silent(_words_of(error)) from error
        return reader, writer

    async def close(self) -> None:
        await self._client.aclose()

    async def _place(self, path: str) -> str:
        major, minor = (await self.version()).api
        return f"/v{major}.{minor}{path}"

    def _silent(self, why: str) -> Unavailable:
        said = f"the engine at {self.address} does not answer: {why}"
        # It may hang up before its reason is read.
        return Unavailable(why=said, **_BY_TLS) if self.address.scheme == "tcp" else Unavailable(why=said)


async def _read(response: httpx.Response) -> bytes:
    """Reads an answer, up to a bound."""
    said = bytearray()
    async for piece in response.aiter_bytes():
        said += piece
        if len(said) > _ANSWER_BYTES:
            raise Unavailable(why=f"the engine said more than {_ANSWER_BYTES >> 20} MB")
    return bytes(said)


def message_of(answer: Answer) -> str:
    """Returns what an engine says is wrong."""
    if isinstance(answer.content, dict):
        said = answer.content.get("message") or answer.content.get("cause")
        if said:
            return str(said)[:_SAID]
    return f"status {answer.status}"


def _words_of(error: BaseException) -> str:
    """Returns what an error says, or what it comes from: that of a client refused by TLS has no words."""
    at: BaseException | None = error
    while at is not None and not str(at):
        at = at.__cause__ or at.__context__
    return str(at or type(error).__name__)


def _parsed(said: bytes) -> Any:
    """Returns the JSON of an answer; None if it is none."""
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return None
