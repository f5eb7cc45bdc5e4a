"""The other floor: 100 MB in and out of a bare Starlette handler, to the same disk, on the same server.

What uvicorn, httptools and the kernel cost without us: no signature, no hash, no sandbox, no supervisor.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route


def bare_app(folder: Path) -> Starlette:
    target = folder / "content"

    async def put(request: Request) -> Response:
        with target.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
        return Response(status_code=204)

    async def get(request: Request) -> Response:
        return FileResponse(target)

    return Starlette(
        routes=[Route("/content", put, methods=["PUT"]), Route("/content", get, methods=["GET"])]
    )


if __name__ == "__main__":
    uvicorn.run(
        bare_app(Path(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
        loop="uvloop",
        http="httptools",
    )
