"""A real platform behind deploy/Caddyfile, used over TLS by our own client: signatures survive the proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.caddy import Site, running_caddy, why_no_caddy
from tests.support.platforms import real_platform, why_not_real

absent = why_no_caddy() or why_not_real()
pytestmark = pytest.mark.skipif(bool(absent), reason=absent or "")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Path]]:
    with (
        real_platform(tmp_path_factory.mktemp("state")) as up,
        running_caddy(tmp_path_factory.mktemp("caddy"), up.url.removeprefix("http://")) as site,
    ):
        yield site, up.owner_file


@pytest.fixture
def sandbox(public: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    site, owner_file = public
    monkeypatch.setenv("SSL_CERT_FILE", str(site.authority))
    with (
        Sandboxer(url=f"https://{site.address}", owner_file=owner_file) as client,
        client.create() as sandbox,
    ):
        yield sandbox


def test_a_command_runs_through_the_public_address(sandbox: Sandbox) -> None:
    assert sandbox.exec("echo $((6 * 7))").stdout == "42\n"


def test_a_large_file_goes_in_and_out_unchanged(sandbox: Sandbox, tmp_path: Path) -> None:
    content = os.urandom(20_000_000)
    sandbox.files.write("/workspace/a b+c%.bin", content)
    sandbox.files.download("/workspace/a b+c%.bin", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content


def test_output_arrives_while_the_command_still_runs(sandbox: Sandbox) -> None:
    """The command ends only after a file appears, which is written when its first line was seen."""
    pieces = sandbox.stream("echo first; until [ -e /workspace/go ]; do sleep 0.05; done; echo last")
    for piece in pieces:
        if "first" in str(piece):
            sandbox.files.write("/workspace/go", b"")
            break
    assert "last" in "".join(str(piece) for piece in pieces)


def test_metrics_are_not_shown_to_the_world(public: tuple[Site, Path]) -> None:
    site, _ = public
    with httpx.Client(verify=site.trust(), trust_env=False) as client:
        assert client.get(f"https://{site.address}/metrics").status_code == 404
        assert client.get(f"https://{site.address}/health").status_code == 200
        assert client.get(f"https://{site.address}/v1/sandboxes").status_code == 401
