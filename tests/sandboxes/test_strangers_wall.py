"""Which backends a platform opens for strangers, and what is said of their wall."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.settings import Settings
from sandboxer.settings.strangers import backends_of, wall_of_strangers
from tests.support.oci import require_runtime

NOWHERE = "/nowhere/runsc"


def _settings(**more: object) -> Settings:
    return Settings.model_validate({"charging": True, **more})


def test_without_gvisor_nothing_more_is_opened_and_it_says_why() -> None:
    settings = _settings(oci_runtime=NOWHERE)

    assert backends_of(settings) == ("ext.namespaces",)
    assert wall_of_strangers(settings).startswith("as profiles say: there is no /nowhere/runsc on this host")


def test_a_runtime_that_shares_the_host_s_kernel_is_no_strong_wall(tmp_path: Path) -> None:
    runc = tmp_path / "runc"
    runc.write_text("#!/bin/sh\n")
    runc.chmod(0o755)
    settings = _settings(oci_runtime=str(runc))

    assert backends_of(settings) == ("ext.namespaces",)
    assert "runc gives no kernel of its own" in wall_of_strangers(settings)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"charging": "auto"}, "no account but those that you open may create anything"),
        ({"strangers_wall": "profile"}, "as profiles say (SANDBOXER_STRANGERS_WALL=profile)"),
        ({"strangers_wall": "strong"}, "nothing is made for them: there is no /nowhere/runsc on this host"),
    ],
)
def test_it_says_which_wall_they_get(more: dict[str, object], words: str) -> None:
    assert wall_of_strangers(_settings(oci_runtime=NOWHERE, **more)).startswith(words)


@pytest.mark.parametrize(
    ("more", "opened", "words"),
    [
        ({}, ("ext.namespaces", "ext.oci"), "a kernel of their own: gVisor"),
        ({"strangers_wall": "profile"}, ("ext.namespaces",), "as profiles say"),
        ({"charging": "auto"}, ("ext.namespaces",), "no account but those"),
        ({"backends": ("ext.namespaces",)}, ("ext.namespaces",), "as profiles say: SANDBOXER_BACKENDS"),
        ({"backends": ("ext.oci",)}, ("ext.oci",), "a kernel of their own: gVisor"),
    ],
)
def test_where_gvisor_is_they_get_it_unless_the_operator_says_otherwise(
    more: dict[str, object], opened: tuple[str, ...], words: str
) -> None:
    settings = _settings(oci_runtime=require_runtime("runsc"), **more)

    assert backends_of(settings) == opened
    assert wall_of_strangers(settings).startswith(words)
