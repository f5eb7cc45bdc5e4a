"""The names that are written into unsandbox's clients, served by the platform's own authority."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxer.edges.proxy.caddy import EdgePlan, render
from sandboxer.wire.unsandbox import API_HOST, PORTAL_HOST
from tests.support.borrowed_names import BorrowedNames
from tests.support.caddy import why_no_caddy
from tests.support.e2b import Tls, tls_platform
from tests.support.platforms import free_port, why_not_real

NAMES = (API_HOST, PORTAL_HOST)


def test_the_edge_serves_them_when_it_is_told_to_and_by_no_public_certificate() -> None:
    plan = {"site": "a.example.org", "domain": "b.example.org", "api": "127.0.0.1:1", "ports": "127.0.0.1:2"}
    assert API_HOST not in render(EdgePlan(**plan))
    shown = render(EdgePlan(**plan, others=NAMES))
    for name in NAMES:
        assert f"https://{name}:443 {{\n\ttls internal\n" in shown


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[tuple[Tls, BorrowedNames]]:
    if why := why_not_real() or why_no_caddy():
        pytest.skip(why)
    port = free_port()
    settings = {"SANDBOXER_UNSANDBOX_NAMES": "true"}
    with tls_platform(tmp_path / "state", settings=settings, port=port) as made:
        names = BorrowedNames(tmp_path / "names", NAMES, made.authority, port)
        yield made, names
        names.close()


@pytest.mark.slow
def test_a_program_that_knows_nothing_but_their_name_is_answered_by_tls(
    edge: tuple[Tls, BorrowedNames], tmp_path: Path
) -> None:
    _, names = edge
    for name in NAMES:
        words = names.command(["curl", "-sS", "--max-time", "30", f"https://{name}/health"], tmp_path)
        environment = os.environ | names.environment
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == '{"status":"ok"}', done.stderr
    hosts = Path("/etc/hosts").read_text()
    assert API_HOST not in hosts
