"""The other floor: 100 MB in and out of a bare Starlette handler, to the same disk, on the same server, and
answers to E2B's client that nothing was done for.

What uvicorn, httptools and the kernel cost without us: no signature, no hash, no sandbox, no supervisor.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

# What E2B's client reads of a new sandbox.
SANDBOX = {
    "templateID": "base",
    "sandboxID": "none",
    "clientID": "none",
    "envdVersion": "0.6.7",
    "envdAccessToken": "none",
}
# And of a command that says "hi" and ends.
EVENTS = (
    {"event": {"start": {"pid": 1}}},
    {"event": {"data": {"stdout": base64.b64encode(b"hi\n").decode()}}},
    {"event": {"end": {"exitCode": 0, "exited": True, "status": "exit status 0"}}},
)


def bare_app(folder: Path) -> Starlette:
    target = folder / "content"

    async def put(request: Request) -> Response:
        with target.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
        return Response(status_code=204)

    async def get(request: Request) -> Response:
        return FileResponse(target)

    async def write(request: Request) -> Response:
        await put(request)
        return JSONResponse([{"name": "big", "path": "/big", "type": "file"}])

    return Starlette(
        routes=[
            Route("/content", put, methods=["PUT"]),
            Route("/content", get, methods=["GET"]),
            Route("/e2b/envd/files", write, methods=["POST"]),
            Route("/e2b/envd/files", get, methods=["GET"]),
            Route("/e2b/v2/sandboxes", _create, methods=["POST"]),
            Route("/e2b/sandboxes/{id}", _kill, methods=["DELETE"]),
            Route("/e2b/envd/process.Process/Start", _start, methods=["POST"]),
        ]
    )


async def _create(request: Request) -> Response:
    await request.body()
    return JSONResponse(SANDBOX, 201)


async def _kill(request: Request) -> Response:
    return Response(status_code=204)


async def _start(request: Request) -> Response:
    """Sends its events one by one, as every daemon does."""
    await request.body()

    async def said() -> AsyncIterator[bytes]:
        for event in EVENTS:
            yield _envelope(event)
        yield _envelope({}, 2)

    return StreamingResponse(said(), media_type="application/connect+json")


def _envelope(message: object, flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


if __name__ == "__main__":
    uvicorn.run(
        bare_app(Path(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
        loop="uvloop",
        http="httptools",
    )
