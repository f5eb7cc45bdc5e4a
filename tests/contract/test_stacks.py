"""What compose is given, and when a stack is ready: decisions without a host."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from sandboxer.backends.compose_ssh import engine, stack
from sandboxer.backends.compose_ssh.stack import Readiness, closed, files_named, states_of, told
from sandboxer.kernel.errors import InvalidRequest, ProvisionFailed

SCRIPTS = [
    *("INVENTORY", "STATE", "DEATHS", "REMOVE", "REMOVE_FOLDER", "STOP", "USAGE", "LOOK", "INSTALL"),
    *("SET_MARK", "MAKE"),
]


@pytest.mark.parametrize(
    ("printed", "readiness"),
    [
        ("web|running|0|", Readiness.READY),
        ("web|running|0|healthy", Readiness.READY),
        ("web|running|0|starting", Readiness.WAITING),
        ("web|created|0|", Readiness.WAITING),
        ("web|restarting|1|", Readiness.WAITING),
        ("web|running|0|unhealthy", Readiness.FAILED),
        ("migrate|exited|0|", Readiness.READY),
        ("migrate|exited|3|", Readiness.FAILED),
    ],
)
def test_a_service_is_ready_when_it_runs_and_nothing_says_otherwise(
    printed: str, readiness: Readiness
) -> None:
    (state,) = states_of(printed + "\n")
    assert state.readiness is readiness


def test_no_network_of_a_stack_leads_outside() -> None:
    text = """
services:
  web: {image: small, networks: {front: null}}
  db: {image: small, dns: [10.0.0.1]}
  host: {image: small, network_mode: host}
networks:
  front: {driver: bridge}
  theirs: {external: true, name: theirs}
"""
    whole = yaml.safe_load(closed(text, "sbx_1"))
    assert whole["networks"] == {
        "front": {"driver": "bridge", "internal": True},
        "theirs": {"external": True, "name": "theirs"},
        "default": {"external": True, "name": "sbx_1"},
    }
    assert whole["services"]["web"]["dns"] == ["127.0.0.1"]
    assert whole["services"]["db"]["dns"] == ["10.0.0.1"]
    assert "dns" not in whole["services"]["host"]


@pytest.mark.parametrize("text", ["", "{", "services: {}", "networks: {a: {}}"])
def test_what_names_no_services_is_no_stack(text: str) -> None:
    with pytest.raises(ProvisionFailed):
        closed(text, "sbx_1")


def test_a_bundle_is_a_file_or_a_folder_of_the_workspace() -> None:
    assert files_named(None)[0] == "compose.yaml"
    assert files_named("e2e")[:2] == ["e2e", "e2e/compose.yaml"]
    for wrong in ("/etc/compose.yml", "../compose.yml", "a/../../b", "https://host/compose.yml", "a\nb"):
        with pytest.raises(InvalidRequest):
            files_named(wrong)


def test_variables_of_a_caller_reach_compose_and_change_nothing_of_the_host() -> None:
    given = {"TOKEN": "it's; $HOME", "PATH": "/evil", "DOCKER_HOST": "tcp://evil", "bad name": "x"}
    script = told(given).decode() + '\nprintf %s "$TOKEN|$PATH|${DOCKER_HOST-none}"'
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": "/bin"}
    )
    assert done.stdout == "it's; $HOME|/bin|none"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_a_shell_s(name: str) -> None:
    subprocess.run(["/bin/sh", "-n", "-c", getattr(engine, name)], check=True)


@pytest.mark.parametrize("name", ["FIND", "READ", "WRITE", "UP", "LOOK", "LAST_WORDS"])
def test_every_script_of_stacks_is_a_shell_s(name: str) -> None:
    subprocess.run(["/bin/sh", "-n", "-c", getattr(stack, name)], check=True)


def test_usage_is_the_sum_of_all_containers() -> None:
    printed = "memory 5\ncpu 7\npids 1\nmemory 6\ndisk 10\ndisk \nnonsense\ndisk 2\n"
    assert engine.usage_of(printed) == {"cpu": 7, "memory": 11, "pids": 1, "disk": 12}
