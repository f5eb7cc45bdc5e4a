"""Flows 11 and 12: an agent asks what there is before it spends, and chooses how far a sandbox is trusted."""

from __future__ import annotations

from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.flows.suite import (
    Bench,
    Flow,
    NotOffered,
    expect,
    expect_equal,
    nothing_is_left,
    refused,
    sh,
    until,
)

introspection = Flow(11, "Introspection: what there is, before anything is spent")
trust = Flow(12, "Trust: walls that nobody inside can move")
# The paper's.
LEAST_LANGUAGES = 42
SHELLS = frozenset({"bash", "sh", "zsh", "fish"})
# Each is run: this many are enough to see whether the list tells the truth.
MOST_HELLOS = 5
# Nobody can own a name below it (RFC 6761), so a request for it goes nowhere.
NOBODYS = "flowcheck.invalid"
METADATA = "169.254.169.254"
# What a program without a network sees: whether any interface but loopback, whether any connection.
LOOK_OUT = f"""
ls /sys/class/net 2>/dev/null || sed 1,2d /proc/net/dev | cut -d: -f1
for address in 1.1.1.1 {METADATA}; do
  if timeout 3 bash -c "echo > /dev/tcp/$address/80" 2>/dev/null; then echo "reached $address"; fi
done
"""
FETCH = 'curl -s -m 15 -o /dev/null -w "%{{http_code}}" http://{host}/ || true'
PAST_THE_PROXY = FETCH.replace("curl", "curl --noproxy '*'")


@introspection.check("an agent asks first whether it is worth asking")
async def the_platform_is_well_and_says_so(bench: Bench) -> None:
    health = await bench.client.status.health()
    failing = [name for name, seen in health.checks.items() if seen != "ok"]
    expect_equal((health.status, failing), ("ok", []), "its health")


@introspection.check("the paper's languages and shells")
async def it_names_its_languages_and_shells(bench: Bench) -> None:
    languages = {one.name for one in await bench.client.languages.list()}
    shells = {one.name for one in await bench.client.languages.shells()}
    expect(len(languages | shells) >= LEAST_LANGUAGES, f"it names {len(languages)}")
    expect(shells >= SHELLS, f"it does not name {', '.join(sorted(SHELLS - shells))}")
    for one in await bench.client.languages.list():
        found = await bench.client.languages.get(one.aliases[0] if one.aliases else one.name)
        expect_equal(found.name, one.name, "what an alias leads to")
        break


@introspection.check("what is said to run and does not wastes money")
async def what_is_said_to_run_here_runs(bench: Bench) -> None:
    here = [one for one in await bench.client.languages.list(available=True) if not one.compile]
    if not here:
        raise NotOffered("no language is said to run here")
    await bench.demand_means()
    for one in sorted(here, key=lambda each: each.name)[:MOST_HELLOS]:
        done = await bench.client.code.run(one.hello, language=one.name)
        expect("hello" in done.stdout.lower(), f"the program of {one.name} says {done.stdout!r}")


@introspection.check("an agent plans by what is left")
async def its_counts_follow_what_is_made(bench: Bench) -> None:
    before = await bench.client.status.limits()
    sandbox = await bench.sandbox()
    after = await bench.client.status.limits()
    expect_equal(after.slots_in_use, before.slots_in_use + 1, "how many slots are in use")
    listed = [one.id async for one in bench.client.list(labels=bench.labels)]
    expect(sandbox.id in listed, "a sandbox is not listed")
    stats = await bench.client.status.stats()
    expect(sum(stats.sandboxes.values()) >= 1, "it counts no sandboxes")
    cluster = await bench.client.status.cluster()
    expect(cluster.hosts and cluster.allocated >= 1, "no host carries anything")


introspection.check("looking must cost nothing")(nothing_is_left)


@trust.check("zero trust: no way out at all")
async def at_trust_zero_nothing_leads_out(bench: Bench) -> None:
    sandbox = await bench.sandbox(trust="zero")
    expect_equal((await sandbox.refresh()).trust, "zero", "its trust")
    seen = (await sh(sandbox, LOOK_OUT)).split()
    expect_equal(seen, ["lo"], "the interfaces that it has, and the addresses that it reached")


@trust.check("you do not ask the prisoner to lock the door")
async def trust_is_chosen_once_and_from_outside(bench: Bench) -> None:
    sandbox = await bench.sandbox(trust="zero")
    target = f"/v1/sandboxes/{sandbox.id}"
    answer = await bench.send("PATCH", target, {"trust": "semi"})
    expect(answer.status_code in (405, 422), f"another trust is answered with {answer.status_code}")
    await refused(sandbox.egress.allow(NOBODYS), 409, what="a rule where no way out exists")
    tried = "ip link add flow0 type dummy && ip link set flow0 up && ip route add default dev flow0"
    done = await sandbox.exec(tried)
    expect(done.exit_code != 0, "root inside can make a way out")
    expect_equal((await sandbox.refresh()).trust, "zero", "its trust then")


async def _filtered(bench: Bench) -> AsyncSandbox:
    if "semi" not in (await bench.client.capabilities()).trust_levels:
        raise NotOffered("no sandbox here has a network")
    sandbox = await bench.sandbox(trust="semi")
    if (await sandbox.exec("command -v curl")).exit_code != 0:
        raise NotOffered("the image has no curl, with which this check asks")
    return sandbox


@trust.check("semi trust: out by a proxy, by rules")
async def at_trust_semi_what_no_rule_allows_is_refused_and_noted(bench: Bench) -> None:
    sandbox = await _filtered(bench)
    said = await sandbox.egress.explain(f"http://{NOBODYS}/")
    expect(not said.allowed, "a host that no rule names may be reached")
    expect_equal(await sh(sandbox, FETCH.format(host=NOBODYS)), "403", "what the proxy answers")

    async def is_noted() -> bool:
        return any(one.host == NOBODYS for one in await sandbox.egress.denials())

    await until(is_noted, "the refusal is not among the denials")
    for host in ("1.1.1.1", METADATA):
        code = await sh(sandbox, PAST_THE_PROXY.format(host=host))
        expect(code in ("403", "000"), f"past the proxy {host} answers {code}")


@trust.check("a name can lead anywhere")
async def a_rule_opens_what_it_names_and_no_inner_address(bench: Bench) -> None:
    sandbox = await _filtered(bench)
    try:
        await sandbox.egress.allow(NOBODYS)
        expect((await sandbox.egress.explain(f"http://{NOBODYS}/")).allowed, "the rule does not hold")
        await sandbox.egress.allow(METADATA)
    except ApiError as error:
        expect(error.status in (400, 409, 422), f"a rule is answered with {error.status}")
    code = await sh(sandbox, FETCH.format(host=METADATA))
    expect(code in ("403", "000"), f"the metadata of the host's cloud answers {code}")


@trust.check("in at both levels: a service needs no way out")
async def what_listens_inside_is_reached_from_outside(bench: Bench) -> None:
    sandbox = await bench.sandbox(trust="zero")
    if (await sandbox.exec("command -v python3")).exit_code != 0:
        raise NotOffered("the image has no Python, with which this check listens")
    await sh(sandbox, "echo inside > /workspace/a.txt")
    await sandbox.processes.start("python3 -m http.server 8000", cwd="/workspace")

    async def answers() -> bool:
        there = await bench.send("GET", f"/v1/sandboxes/{sandbox.id}/ports/8000/a.txt")
        return (there.status_code, there.text) == (200, "inside\n")

    await until(answers, "the port is not reached")


trust.check("a sandbox that stays costs")(nothing_is_left)
