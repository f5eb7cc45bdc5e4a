"""The connection to a node: every failure becomes `ChainUnavailable`, and numbers stay exact.

Answers are not trusted: the readers here (`integer`, `text`, `amount`) raise instead of guessing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx

from sandboxer.kernel.errors import ChainUnavailable, InvalidRequest
from sandboxer.payments.chains.addresses import Network, payment_uri, script_of
from sandboxer.payments.rates import ASSETS, to_atomic

if TYPE_CHECKING:
    from sandboxer.payments.chains.bitcoin import AccountKey

MAX_ANSWER = 32 * 2**20
TIMEOUT = httpx.Timeout(20, connect=5)
TIMED_OUT = "no answer in time"
MONERO_PATH = "/json_rpc"


class NodeError(Exception):
    """The node refused a call. It never leaves this package: adapters know which codes are ordinary and turn
    the rest into `ChainUnavailable`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class Wire:
    """One node's HTTP connection. `auth` is httpx's: a pair for basic, `httpx.DigestAuth` for Monero."""

    def __init__(
        self, chain: str, url: str, *, auth: httpx.Auth | None = None, timeout: httpx.Timeout = TIMEOUT
    ) -> None:
        self.chain = chain
        # trust_env: a proxy meant for the web must not see a wallet's traffic.
        self._http = httpx.AsyncClient(base_url=url, auth=auth, timeout=timeout, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> httpx.Response:
        return await self._exchange("GET", path, None)

    async def post(self, path: str, body: str) -> httpx.Response:
        return await self._exchange("POST", path, body)

    async def _exchange(self, method: str, path: str, body: str | None) -> httpx.Response:
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            async with self._http.stream(method, path, content=body, headers=headers) as answer:
                read = bytearray()
                async for part in answer.aiter_bytes():
                    read += part
                    if len(read) > MAX_ANSWER:
                        raise self.trouble(f"the answer is larger than {MAX_ANSWER} bytes")
        except httpx.TimeoutException:
            raise self.trouble(TIMED_OUT) from None
        except httpx.HTTPError as error:
            # The kind only: messages may carry the URL, and a URL may carry a password.
            raise self.trouble(f"no connection ({type(error).__name__})") from None
        if answer.status_code in (401, 403):
            raise self.trouble(f"the node refuses our credentials (HTTP {answer.status_code})")
        return httpx.Response(answer.status_code, content=bytes(read))

    def trouble(self, why: str) -> ChainUnavailable:
        return ChainUnavailable(chain=self.chain, why=why)

    def json(self, answer: httpx.Response) -> Any:
        try:
            return json.loads(answer.content, parse_float=Decimal, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise self.trouble(f"the answer is not JSON (HTTP {answer.status_code})") from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


class JsonRpc:
    """JSON-RPC over a wire; `batch` sends many calls at once and gives results or errors in their order."""

    def __init__(self, wire: Wire, path: str = "/") -> None:
        self._wire = wire
        self._path = path
        self._ids = itertools.count(1)

    async def call(self, method: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        request = self._request(method, params)
        answer = self._wire.json(await self._wire.post(self._path, json.dumps(request)))
        result = self._result(answer, request["id"])
        if isinstance(result, NodeError):
            raise result
        return result

    async def batch(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any | NodeError]:
        if not calls:
            return []
        requests = [self._request(method, params) for method, params in calls]
        answers = self._wire.json(await self._wire.post(self._path, json.dumps(requests)))
        if not isinstance(answers, list) or not all(isinstance(each, dict) for each in answers):
            raise self._wire.trouble("a batch was answered by something else")
        by_id = {each.get("id"): each for each in answers}
        return [self._result(by_id.get(request["id"]), request["id"]) for request in requests]

    def _request(self, method: str, params: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
        given = dict(params) if isinstance(params, Mapping) else list(params)
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": given}

    def _result(self, answer: Any, id: int) -> Any | NodeError:
        if not isinstance(answer, dict) or answer.get("id") != id:
            raise self._wire.trouble("the answer belongs to no call of ours")
        if (error := answer.get("error")) is None:
            return answer.get("result")
        if not isinstance(error, dict) or type(error.get("code")) is not int:
            raise self._wire.trouble("an error without a code")
        return NodeError(error["code"], str(error.get("message", ""))[:300])


@dataclass(frozen=True)
class Reader:
    """Reads fields of an answer; raises ChainUnavailable for values that make no sense."""

    chain: str

    def nonsense(self, why: str) -> ChainUnavailable:
        return ChainUnavailable(chain=self.chain, why=f"the node says what cannot be: {why}")

    def object(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.nonsense("not an object")
        return value

    def objects(self, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list):
            raise self.nonsense("not a list")
        return [self.object(each) for each in value]

    def integer(self, value: Any, name: str, *, least: int = 0) -> int:
        if type(value) is not int or value < least:
            raise self.nonsense(f"{name} is {str(value)[:40]!r}")
        return value

    def text(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= 200:
            raise self.nonsense(f"{name} is not a text")
        return value

    def hash(self, value: Any, name: str) -> str:
        found = self.text(value, name).lower()
        if len(found) != 64 or not set(found) <= set("0123456789abcdef"):
            raise self.nonsense(f"{name} is not a hash")
        return found

    def amount(self, value: Any, name: str) -> int:
        """A decimal number of coins, as Core-style nodes write it, in atomic units."""
        if not isinstance(value, Decimal | int) or isinstance(value, bool):
            raise self.nonsense(f"{name} is not a number")
        try:
            return to_atomic(Decimal(value), ASSETS[self.chain])
        except InvalidRequest:
            raise self.nonsense(f"{name} is {str(value)[:40]}") from None


class NodeChain:
    """The part of a `Chain` that the adapters of the Bitcoin family share: one node of one network, and the
    keys whose addresses are handed out."""

    def __init__(
        self,
        network: Network,
        url: str,
        keys: AccountKey | None,
        timeout: httpx.Timeout | None,
        auth: httpx.Auth | None = None,
    ) -> None:
        self.code = network.coin
        self.network = network
        self._keys = keys
        self._wire = Wire(self.code, url, auth=auth, timeout=timeout or TIMEOUT)
        self._read = Reader(self.code)

    async def close(self) -> None:
        await self._wire.close()

    def check_address(self, text: str) -> None:
        script_of(text, self.network)

    def payment_uri(self, address: str, amount: int, label: str) -> str:
        return payment_uri(self.code, address, amount, label)

    def _checked_once(self, addresses: Sequence[str]) -> list[str]:
        """Each address once. Raises InvalidRequest for one that is not of this chain."""
        wanted = list(dict.fromkeys(addresses))
        for address in wanted:
            self.check_address(address)
        return wanted


def own_keys(keys: AccountKey | None, wire: Wire) -> AccountKey:
    if keys is None:
        raise wire.trouble("no xpub is configured, so no address can be derived")
    return keys


class MoneroServer:
    """A monero-wallet-rpc, with the account in it that we use."""

    code = "XMR"

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        account: int = 0,
        network: str = "mainnet",
        timeout: httpx.Timeout | None = None,
    ) -> None:
        self.network = network
        self.account = account
        auth = httpx.DigestAuth(user, password or "") if user else None
        self._wire = Wire(self.code, url, auth=auth, timeout=timeout or TIMEOUT)
        self._wallet = JsonRpc(self._wire, MONERO_PATH)
        self._read = Reader(self.code)

    async def close(self) -> None:
        await self._wire.close()
