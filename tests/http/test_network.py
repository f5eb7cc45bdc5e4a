"""`network`, by which callers say what a sandbox may reach: what follows from each word, and who may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.settings import Settings, load_settings
from tests.support.http.accounts import cut
from tests.support.http.served import Scripted, Served, serving

# Nobody reaches these, so nobody may believe to be able to.
ODD = [
    "*",
    "*.com",
    "*.*.example.com",
    "a.*.com",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "foo.localhost",
    "printer.local",
    "metadata.google.internal",
    "router.lan",
    "box",
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "0177.0.0.1",
    "2130706433",
    "0.0.0.0",
    "10.0.0.1",
    "192.168.1.1:80",
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "100.100.100.200",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "::1",
    "[::ffff:127.0.0.1]:80",
    "fe80::1%eth0",
    "https://example.com",
    "example.com/path",
    "user@example.com",
    "user:pass@example.com",
    "example.com:0",
    "example.com:65536",
    "example.com:-1",
    "example.com:٤٤٣",
    "example.com:",
    ":443",
    "",
    "example.com,",
    "example..com",
    "-example.com",
    "exa%6dple.com",
    "exämple.com",
    "example。com",
    "example.com\x00.org",
    "example.com#.org",
    "example.com?x",
    ",".join(f"h{n}.example.com" for n in range(65)),
]


async def test_a_host_that_is_none_is_refused_before_anything_is_made(served: Served) -> None:
    words = ["None", "semi", "all", "allow", "allow:", "packages ", "none,open"]
    for network in (*(f"allow:{host}" for host in ODD), *words):
        answer = await served.client.post("/v1/sandboxes", {"network": network})
        assert (answer.status_code, answer.json()["field"]) == (422, "network"), (network, answer.text)
    assert (await served.client.get("/v1/sandboxes")).json()["sandboxes"] == []


async def rules(served: Served, network: str) -> tuple[str, list[tuple[str, list[int]]]]:
    path = await served.sandbox(network=network)
    shown = (await served.client.get(path)).json()
    assert (shown["network"], shown["trust"]) == (network, "semi")
    egress = (await served.client.get(f"{path}/egress")).json()
    assert all(one["action"] == "allow" for one in egress["rules"])
    return egress["default"], [(one["host"], one["ports"]) for one in egress["rules"]]


async def test_each_word_becomes_rules(served: Served) -> None:
    closed = await served.sandbox(network="none", profile="profile.packages")
    assert (await served.client.get(closed)).json()["trust"] == "zero"
    assert (await served.client.get(f"{closed}/egress")).status_code == 409
    assert await rules(served, "open") == ("allow", [("*", [])])
    default, hosts = await rules(served, "packages")
    assert default == "deny"
    assert {"pypi.org", "*.npmjs.org", "deb.debian.org", "proxy.golang.org"} <= {host for host, _ in hosts}
    wanted = "allow:Example.COM.,*.example.org:8443,example.com,93.184.215.14"
    assert await rules(served, wanted) == (
        "deny",
        [("example.com", [443, 80]), ("*.example.org", [8443]), ("93.184.215.14", [443, 80])],
    )


async def test_a_network_and_a_trust_level_that_differ_are_refused(served: Served) -> None:
    for network, trust in (("none", "semi"), ("open", "zero"), ("packages", "zero")):
        answer = await served.client.post("/v1/sandboxes", {"network": network, "trust": trust})
        assert (answer.status_code, answer.json()["field"]) == (422, "network"), answer.text
    await served.sandbox(network="open", trust="semi")


@pytest.mark.parametrize(
    ("denied", "network"),
    [
        ("pypi.org", "packages"),
        ("*.org", "allow:example.org"),
        ("example.org:443", "allow:example.org"),
        ("*.example.org", "allow:*.example.org"),
        ("*", "allow:example.org:8443"),
    ],
)
async def test_what_the_account_denies_is_not_left_out_in_silence(
    served: Served, denied: str, network: str
) -> None:
    host, _, port = denied.partition(":")
    rule = {"action": "deny", "host": host, **({"ports": [int(port)]} if port else {})}
    await served.client.send("PUT", "/v1/egress", body={"rules": [rule]})
    refused = await served.client.post("/v1/sandboxes", {"network": network})
    assert (refused.status_code, refused.json()["reason"]) == (403, "denied_by_rule"), refused.text
    await served.sandbox(network="open")
    await served.sandbox(network="allow:elsewhere.net" if host != "*" else "none")


async def test_a_delegated_key_gets_no_network_that_it_could_not_allow(served: Served) -> None:
    child = await cut(served, served.client, budget_sats=0)
    for network in ("open", "allow:example.com"):
        refused = await child.post("/v1/sandboxes", {"network": network})
        assert (refused.status_code, refused.json()["reason"]) == (403, "missing_scope"), refused.text
        assert "account:manage" in refused.json()["detail"]
    # A profile that everybody may use gives it anyway.
    for network in ("none", "packages"):
        made = await child.post("/v1/sandboxes", {"network": network})
        assert made.status_code == 201, made.text


async def test_an_operator_or_a_profile_may_give_no_network(settings: Settings, tmp_path: Path) -> None:
    for file in settings.profiles_dir.glob("*.yaml"):
        text = file.read_text()
        if file.stem == "agent-dev":
            text = text.replace("  default: deny\n", "  default: deny\n  most: none\n")
        (tmp_path / file.name).write_text(text)
    closed = settings.model_copy(update={"profiles_dir": tmp_path})
    strict = settings.model_copy(update={"trust_max": "zero", "state_dir": tmp_path / "strict"})
    for changed, why in ((closed, "profile.agent-dev have no network"), (strict, "no sandbox here")):
        async with serving(changed, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
            for network in ("open", "packages", "allow:example.com"):
                wanted = {"network": network, "profile": "profile.agent-dev"}
                refused = await served.client.post("/v1/sandboxes", wanted)
                assert (refused.status_code, why in refused.json()["detail"]) == (403, True), refused.text
            await served.sandbox(network="none", profile="profile.agent-dev")


async def test_a_run_a_session_and_a_service_have_it_too(served: Served) -> None:
    for path, body in (
        ("/v1/execute", {"code": "print(1)", "language": "python"}),
        ("/v1/sessions", {"language": "python"}),
        ("/v1/services", {"name": "web", "command": "exec true"}),
    ):
        answer = await served.client.post(path, {**body, "network": "allow:localhost"})
        assert (answer.status_code, answer.json()["field"]) == (422, "network"), (path, answer.text)


async def test_the_table_is_extended_by_hosts_and_mirrors(
    settings: Settings,
) -> None:
    environment = {
        "GOPROXY": "https://go.example.net,direct",
        "NPM_CONFIG_REGISTRY": "https://me:secret@npm.example.net/",
        "SANDBOXER_PACKAGE_HOSTS": "packages.example.net",
        "SANDBOXER_PACKAGE_MIRRORS": "PIP_INDEX_URL=https://pip.example.net:8443/simple",
    }
    read = load_settings(environment)
    changed = settings.model_copy(
        update={"package_hosts": read.package_hosts, "package_mirrors": read.package_mirrors}
    )
    async with serving(changed, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        _, hosts = await rules(served, "packages")
        found = dict(hosts)
        assert found["packages.example.net"] == [443, 80]
        assert (found["pip.example.net"], found["go.example.net"]) == ([8443], [443, 80])
        assert "npm.example.net" not in found, "its password would be everybody's"
        for network, has in (("packages", True), ("open", False)):
            path = await served.sandbox(network=network)
            sandbox = await served.platform.sandboxes.repository.find(path.rpartition("/")[2])
            assert sandbox is not None
            env = served.platform.sandboxes.environment(sandbox)
            assert ("PIP_INDEX_URL" in env, "NPM_CONFIG_REGISTRY" in env) == (has, False)


@pytest.mark.parametrize(
    "text", ["PIP_INDEX_URL", "PIP_INDEX_URL=pip.example.net", "X=https://me:you@a.example/"]
)
def test_a_mirror_that_is_none_keeps_the_platform_from_starting(text: str) -> None:
    with pytest.raises(InvalidRequest, match="package_mirrors"):
        load_settings({"SANDBOXER_PACKAGE_MIRRORS": text})
