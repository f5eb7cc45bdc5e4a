"""Verbs that look at this host, and `up` itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from embit.bip32 import HDKey

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.main import run
from sandboxer.sandboxes.profiles import load_profile
from testchains.bitcoin.chain import Bitcoin
from tests.support.cli import PROGRAM, Cli
from tests.support.platforms import IMAGES, Up, real_platform, why_not_real

NOBODY = Cli({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"})
XPUB = HDKey.from_seed(b"doctor".ljust(64)).to_public().to_base58()


def test_doctor_tells_walls_lacks_and_remedies(tmp_path: Path) -> None:
    said = NOBODY("doctor", "--json", "--state-dir", str(tmp_path))
    assert said.code == Exit.ERROR
    assert said.json["healthy"] is False
    [image] = [lack for lack in said.json["lacks"] if lack["what"] == "base image"]
    assert "sandboxer image build" in image["remedy"]
    assert all(lack["why"] and lack["remedy"] for lack in said.json["lacks"])
    shown = NOBODY("doctor", "--state-dir", str(tmp_path)).out
    assert "cannot make sandboxes" in shown
    assert shown.splitlines()[-1] == f"It lacks base image: {image['remedy']}"


def test_doctor_asks_the_engines_and_hosts_that_the_settings_name(tmp_path: Path) -> None:
    own = {"SANDBOXER_BACKENDS": "ext.namespaces,ext.docker,ext.compose-ssh"}
    own |= {"SANDBOXER_DOCKER_HOST": f"unix://{tmp_path}/none"}
    found = Cli(NOBODY.environment | own)("doctor", "--json", "--state-dir", str(tmp_path / "state")).json
    lacks = {one["what"]: one["why"] for one in found["lacks"]}
    assert f"the engine at unix://{tmp_path}/none does not answer" in lacks["ext.docker"]
    assert "needs a host: SANDBOXER_COMPOSE_SSH" in lacks["ext.compose-ssh"]
    assert not (tmp_path / "state" / "docker").exists()


def test_doctor_is_content_where_sandboxes_work() -> None:
    if why := why_not_real():
        pytest.skip(why)
    environment = NOBODY.environment | {"SANDBOXER_IMAGES_DIR": str(IMAGES)}
    said = Cli(environment)("doctor", "--json")
    assert said.code == Exit.OK
    assert {"files", "network", "uid_range"} <= set(said.json["walls"])


def test_doctor_tells_of_the_pool_that_a_running_platform_has_opened(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    state = tmp_path / "state"
    environment = NOBODY.environment | {"SANDBOXER_IMAGES_DIR": str(IMAGES)}
    look = ("doctor", "--json", "--state-dir", str(state))
    assert "not open" in Cli(environment)(*look).json["facts"]["pool"]
    with real_platform(state, pool_mb=256):
        said = Cli(environment)(*look).json
        assert "256 MB, simple quotas" in said["facts"]["pool"]
        assert "disk" in said["walls"]


def test_doctor_names_coins_whose_node_is_another_and_calls_the_host_able_all_the_same(
    bitcoin: Bitcoin, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(bitcoin.password)
    login = {"user": bitcoin.user, "password_file": str(tmp_path / "password")}
    coin = {"rpc": bitcoin.url, "network": "testnet", "xpub": XPUB, **login}
    environment = NOBODY.environment | {
        "SANDBOXER_IMAGES_DIR": str(IMAGES),
        "SANDBOXER_CHAINS": json.dumps({"BTC": coin}),
    }
    look = ("doctor", "--json", "--state-dir", str(tmp_path / "state"))
    [lack] = [each for each in Cli(environment)(*look).json["lacks"] if each["what"] == "payments in BTC"]
    assert "not of BTC testnet" in lack["why"]
    if why_not_real():
        return
    settings = {"SANDBOXER_CHAINS": environment["SANDBOXER_CHAINS"]}
    with real_platform(tmp_path / "state", pool_mb=256, settings=settings):
        said = Cli(environment)(*look)
        [reported] = [each for each in said.json["lacks"] if each["what"] == "payments in BTC"]
        assert reported == lack
        assert (said.code, said.json["healthy"]) == (Exit.OK, True)


def test_config_show_has_every_setting_and_obeys_the_environment() -> None:
    environment = NOBODY.environment | {"SANDBOXER_PORT": "9000"}
    assert Cli(environment)("config", "show", "--json").json["port"] == 9000
    assert "SANDBOXER_STATE_DIR" in NOBODY("config", "show").out


def test_a_mistyped_setting_is_refused_with_a_hint() -> None:
    said = Cli(NOBODY.environment | {"SANDBOXER_PRT": "9000"})("config", "show")
    assert said.code == Exit.REFUSED
    assert "SANDBOXER_PORT" in said.err


def test_built_images_are_listed_without_a_server(tmp_path: Path) -> None:
    assert NOBODY("image", "list", "--offline", "--json", "--state-dir", str(tmp_path)).items == []
    assert "image build" in NOBODY("image", "list", "--offline", "--state-dir", str(tmp_path)).out


def test_an_unknown_recipe_is_refused(tmp_path: Path) -> None:
    said = NOBODY("image", "build", "no-such", "--state-dir", str(tmp_path))
    assert said.code == Exit.REFUSED
    assert "base" in said.err


def test_a_taken_port_is_explained(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = NOBODY("up", "--state-dir", str(tmp_path / "state"), "--port", port)
    assert said.code == Exit.ERROR
    assert "Address already in use. Choose another --port (`make run`: PORT=…)" in said.err
    assert "Errno" not in said.err


def test_who_is_not_root_is_told_how_to_start_it_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["up", "--state-dir", str(tmp_path / "state")]
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(sys, "argv", ["/srv/venv/bin/sandboxer", *words])
    assert run(words) == Exit.ERROR
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("error: `up` makes sandboxes, which needs root. Run: sudo ")
    assert said.endswith(f"sandboxer up --state-dir {tmp_path / 'state'}")
    assert not (tmp_path / "state").exists()


def test_a_setting_out_of_bounds_is_refused_in_plain_words() -> None:
    said = NOBODY("up", "--port", "99999")
    assert said.err.startswith("error: --port: it should be at most 65535 (also SANDBOXER_PORT).")


def test_the_canary_reports_on_its_host(real_cli: Cli) -> None:
    made = real_cli("canary", "--json").json
    assert made["profile"] == "profile.sandbox-canary"
    assert made["report"]["kernel"]
    said = real_cli("canary")
    assert "What it sees of its host" in said.out


def test_the_demo_runs_a_program_and_leaves_nothing_when_asked_to_stop(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    state = tmp_path / "state"
    environment = NOBODY.environment | {"SANDBOXER_IMAGES_DIR": str(IMAGES), "SANDBOXER_POOL_SIZE_MB": "1536"}
    try:
        said = Cli(environment)("up", "--demo", "--once", "--port", "0", "--state-dir", str(state))
        assert said.code == Exit.OK, said.err
        assert "primes: 2 3 5 7" in said.out
        assert "Network is unreachable" in said.out
        assert "create" in said.out.split("Timings")[1]
    finally:
        subprocess.run(["umount", "-d", str(state / "pool")], check=False)


def test_a_second_platform_on_the_same_folder_refuses_to_start(real_up: Up, real_cli: Cli) -> None:
    # Two would remove each other's sandboxes.
    words = [*PROGRAM, "up", "--state-dir", str(real_up.state_dir), "--port", "0"]
    with subprocess.Popen(words, env=real_cli.environment, stderr=subprocess.PIPE) as second:
        assert second.wait(30) == Exit.REFUSED
        assert second.stderr is not None
        assert b"another sandboxer" in second.stderr.read()


def test_backend_check_runs_the_contract_suite_and_tells_by_its_exit_code() -> None:
    said = NOBODY("backend", "check", "ext.scripted", "--json")
    assert said.code == Exit.OK
    assert len(said.json["checks"]) > 30
    # A deviation that does not deviate is a failure too.
    passing = next(check["name"] for check in said.json["checks"] if check["verdict"] == "passed")
    assert NOBODY("backend", "check", "ext.scripted", "--deviation", passing).code == Exit.ERROR
    assert NOBODY("backend", "check", "ext.none").code == Exit.REFUSED


def test_a_backend_of_a_file_is_listed_and_checked_and_one_that_is_wrong_says_why(tmp_path: Path) -> None:
    (tmp_path / "rack.py").write_text(
        "from contextlib import asynccontextmanager\n"
        "from sandboxer.backends.scripted import DEVIATIONS, Scripted\n\n\n"
        "@asynccontextmanager\nasync def open_backend(settings):\n    yield Scripted(name='ext.rack')\n"
    )
    (tmp_path / "rack.yaml").write_text(
        "id: ext.rack\nhandler: rack:open_backend\nexperimental: it is young\n"
    )
    (tmp_path / "broken.yaml").write_text("id: ext.broken\nhandler: broken:open_backend\nextras: [gpu]\n")
    (tmp_path / "broken.py").write_text("import not_installed_at_all\n")
    cli = Cli(NOBODY.environment | {"SANDBOXER_EXTENSIONS_DIR": str(tmp_path)})
    found = {one["id"]: one for one in cli("backend", "list", "--json").json["items"]}
    assert found["ext.namespaces"]["used"]
    assert found["ext.rack"] == {
        "id": "ext.rack",
        "source": str(tmp_path / "rack.yaml"),
        "used": False,
        "trouble": None,
        "experimental": "it is young",
    }
    assert "experimental: ext.rack, it is young" in cli("backend", "list").out
    assert "pip install 'broken[gpu]'" in found["ext.broken"]["trouble"]
    assert "pip install 'broken[gpu]'" in " ".join(cli("backend", "list").out.split())
    assert cli("backend", "check", "ext.rack", "--json").json["fine"]
    said = cli("backend", "check", "ext.broken")
    assert said.code == Exit.REFUSED
    assert "pip install 'broken[gpu]'" in " ".join(said.err.split())


def test_a_package_is_begun_in_an_empty_folder_under_a_name_that_is_free(tmp_path: Path) -> None:
    package = tmp_path / "package"
    said = NOBODY("backend", "new", "ext.cold-shelf", "--to", str(package))
    assert "backend check ext.cold-shelf" in " ".join(said.out.split())
    made = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    source = "src/sandboxer_cold_shelf/__init__.py"
    assert made == {
        "README.md",
        "profile.cold-shelf.yaml",
        "pyproject.toml",
        source,
        "tests/test_contract.py",
    }
    for path in (source, "tests/test_contract.py"):
        compile((package / path).read_text(), path, "exec")
    assert 'NAME = "ext.cold-shelf"' in (package / source).read_text()
    assert load_profile(package / "profile.cold-shelf.yaml").backend == "ext.cold-shelf"
    told = NOBODY("backend", "new", "other", "--to", str(tmp_path / "told"), "--json").json
    assert told["id"] == "ext.other"
    assert all((tmp_path / "told" / name).is_file() for name in told["files"])
    assert "is no empty folder" in NOBODY("backend", "new", "cold-shelf", "--to", str(package)).err
    for name in ("ext.namespaces", "Shelf", "a b", "../up"):
        assert NOBODY("backend", "new", name, "--to", str(tmp_path / "other")).code == Exit.REFUSED
    assert not (tmp_path / "other").exists()
