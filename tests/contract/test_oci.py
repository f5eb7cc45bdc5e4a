"""The backend behind OCI runtimes passes the contract suite on this host, save what it says it cannot."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.checks.suite import Box
from sandboxer.backends.guest import FirstFile, FolderMount
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.wiring.oci import DEVIATIONS, open_oci
from tests.support.oci import require_runtime
from tests.support.real_backend import clear, make_order, remove_leftovers, settings_for, state_folder

DECLARED: dict[str, dict[str, str]] = {"runc": {}, "crun": {}, "runsc": DEVIATIONS}


# `make test-slow` builds runsc first.
RUNTIMES = ["runc", *(pytest.param(name, marks=pytest.mark.slow) for name in ("crun", "runsc"))]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=RUNTIMES)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[NamespacesBackend]:
    runtime = require_runtime(request.param)
    with state_folder() as state:
        async with open_oci(settings_for(state), runtime=runtime) as opened:
            yield opened
            await clear(opened)
        remove_leftovers(opened)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_backend_keeps_the_contract(backend: NamespacesBackend, check: Check) -> None:
    deviations = DECLARED[(await backend.fingerprint()).facts["runtime"]]
    result = await run_check(check, Bench(backend, make_order), deviation=deviations.get(check.name))
    assert result.is_fine, result.detail
    assert not await backend.inventory()


# Each is tried by root inside, on a folder that the host filled.
CHANGES = (
    "echo forged > /workspace/kept", "rm /workspace/kept", "touch /workspace/kept", "mkdir /workspace/more",
    "chmod 666 /workspace/kept", "mv /workspace/kept /root/", "ln /workspace/kept /root/other",
    "truncate -s 0 /workspace/kept", "mount -o remount,rw /workspace", "umount /workspace",
    "mount -t tmpfs none /workspace", "rmdir /workspace", "mv /workspace /elsewhere",
    "chown nobody /workspace", "setfattr -n user.x -v y /workspace/kept",
    "python3 -c \"open('/workspace/kept', 'r+b')\"",
)  # fmt: skip


@pytest.mark.asyncio(loop_scope="module")
async def test_a_folder_that_root_inside_must_not_write_to_stays_as_it_is(
    backend: NamespacesBackend,
) -> None:
    path = FolderMount(path="/workspace", is_read_only=True)
    kept = FirstFile(path="/workspace/kept", text="true words")
    order = replace(make_order(), folders=(path,), files=(kept,))
    box = Box(backend, order, await backend.provision(order))
    try:
        for change in CHANGES:
            assert await box.text(f"{change} 2>/dev/null; echo $?") != b"0\n", change
        assert await box.text("cat /workspace/kept; ls -A /workspace; ls -d /workspace") == (
            b"true wordskept\n/workspace\n"
        )
    finally:
        await backend.teardown(order.sandbox_id)


@pytest.mark.asyncio(loop_scope="module")
async def test_every_user_inside_may_pass_whatever_umask_the_server_runs_with(
    backend: NamespacesBackend,
) -> None:
    order, before = make_order(), os.umask(0o077)
    try:
        box = Box(backend, order, await backend.provision(order))
        assert await box.text("stat -c %a / /etc /etc/hosts") == b"755\n755\n644\n"
    finally:
        os.umask(before)
        await backend.teardown(order.sandbox_id)
