"""Carries calls over HTTP, blocking."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx

from sandboxer.sdk.calls import Answer, Call
from sandboxer.sdk.confirming import Confirmer
from sandboxer.sdk.errors import Unreachable
from sandboxer.sdk.exchange import Again, Signer, Tries
from sandboxer.sdk.paying import Payer
from sandboxer.sdk.signing import Credentials
from sandboxer.sdk.trust import trust_for

T = TypeVar("T")


class Line:
    """One signed, kept-alive connection pool to one platform."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_s: float = 60.0,
        confirm: Confirmer | None = None,
        payer: Payer | None = None,
    ) -> None:
        self.signer = Signer(credentials, confirm=confirm, payer=payer)
        self.url = credentials.url.rstrip("/")
        self.timeout_s = timeout_s
        # Environment proxies are for the web; the platform is named explicitly.
        timeout = httpx.Timeout(timeout_s, connect=10.0)
        self._http = httpx.Client(timeout=timeout, trust_env=False, verify=trust_for(self.url))

    def close(self) -> None:
        self._http.close()

    def do(self, call: Call[T]) -> T:
        """Send, wait for the whole answer, read it. Raises a typed error."""
        with self.open(call) as response:
            content = _content(response)
        answer = Answer(response.status_code, response.headers, content)
        self.signer.learn_key(answer)
        return call.read(answer)

    @contextmanager
    def open(self, call: Call[T]) -> Iterator[httpx.Response]:
        """Send and hand over the answer's stream as soon as its head says success."""
        response = self._accepted(call)
        try:
            yield response
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error
        finally:
            response.close()

    def _accepted(self, call: Call[T]) -> httpx.Response:
        tries = Tries(self.signer, call)
        while True:
            again: Again | None
            try:
                response = self._http.send(self._request(tries.call), stream=True)
                if response.status_code < 400 or response.status_code in call.also_reads:
                    return response
                content = _content(response)
                again = tries.after_answer(response.status_code, response.headers, content)
            except httpx.TransportError as error:
                again = tries.after_lost()
                if again is None:
                    raise _unreachable(self.url, error) from error
            time.sleep(again.pause_s)

    def _request(self, call: Call[T]) -> httpx.Request:
        timeout = httpx.Timeout(call.timeout_s or self.timeout_s, connect=10.0)
        return httpx.Request(
            call.method,
            self.url + call.target,
            headers=self.signer.headers(call),
            content=call.body.open() if call.body.length else None,
            # The signed bytes are the sent bytes: httpx must not re-quote the path.
            extensions={"target": call.target.encode(), "timeout": timeout.as_dict()},
        )


def _content(response: httpx.Response) -> bytes:
    try:
        return response.read()
    finally:
        response.close()


def _unreachable(url: str, error: Exception) -> Unreachable:
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return Unreachable(f"{url} did not answer in time.", next_step="Try again, or allow more time.")
    return Unreachable(f"Could not reach {url}: {str(error) or type(error).__name__}.")
