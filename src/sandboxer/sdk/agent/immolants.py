"""Immolants: sandboxes that are born for one thought and end with it. Several debate, reflect or vote.

A topology decides who thinks next, or what the answer is, from what was said so far; it is a plain function.
`think_together` makes an immolant for every thought, asks it, and destroys it whatever happens, so that
nothing is left; each tells what it cost. Nobody remembers anything but the words that are handed on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum

from sandboxer.sdk.agent.models import Endpoint, Model, think
from sandboxer.sdk.sync.client import Sandboxer

TTL = "15m"
SMALL: Mapping[str, float] = {"vcpus": 1, "memory_mb": 128, "disk_mb": 64, "pids": 32}
AT_ONCE = 4


class Topology(StrEnum):
    DEBATE = "debate"
    REFLECTION = "reflection"
    CONSENSUS = "consensus"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one immolant is asked."""

    by: str
    task: str


@dataclass(frozen=True, slots=True)
class Thought:
    by: str
    text: str
    sandbox_id: str
    # What the sandbox cost in all, in thousandths of a sat.
    msats: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    answer: str
    # How it came about.
    how: str
    thoughts: tuple[Thought, ...] = ()

    @property
    def sats(self) -> int:
        """Returns what all of them cost, rounded up once and not for each."""
        return -(-sum(one.msats for one in self.thoughts) // 1000)


Step = Callable[[Sequence[Thought]], Sequence[Prompt] | Verdict]
SIDES = ("speaker for it", "speaker against it")


def debate(rounds: int) -> Step:
    """Two sides speak in turn, each having heard the other; then a judge decides."""

    def step(said: Sequence[Thought]) -> Sequence[Prompt] | Verdict:
        if len(said) < 2 * rounds:
            return [Prompt(SIDES[len(said) % 2], "Argue your side in a few sentences, and answer the other.")]
        if len(said) == 2 * rounds:
            return [Prompt("judge", "Decide: answer the question, and say which side was right.")]
        return Verdict(said[-1].text, f"a judge decided after {rounds} rounds")

    return step


def reflection(said: Sequence[Thought]) -> Sequence[Prompt] | Verdict:
    """One answers, one criticises the answer, one writes it anew."""
    match len(said):
        case 0:
            return [Prompt("author", "Answer the question.")]
        case 1:
            return [Prompt("critic", "Say what is wrong or missing in the answer.")]
        case 2:
            return [Prompt("editor", "Answer the question anew, and mend what was criticised.")]
    return Verdict(said[-1].text, "an answer was criticised and written anew")


def consensus(count: int) -> Step:
    """Several answer at once, none hearing another; most votes win, and one more decides a tie."""

    def step(said: Sequence[Thought]) -> Sequence[Prompt] | Verdict:
        if not said:
            return [
                Prompt(f"voter {number}", "Answer in as few words as you can.")
                for number in range(1, count + 1)
            ]
        ballots = said[:count]
        votes = Counter(plain(one.text) for one in ballots)
        most = max(votes.values())
        first = {plain(one.text): one.text for one in reversed(ballots)}
        choices = [first[vote] for vote in votes if votes[vote] == most]
        if len(choices) == 1:
            return Verdict(choices[0], f"{most} of {count} said so")
        if len(said) == count:
            listed = " | ".join(choices)
            return [Prompt("tie-breaker", f"Answer with one of these, word for word: {listed}")]
        chosen = [one for one in choices if plain(one) == plain(said[-1].text)]
        if chosen:
            return Verdict(chosen[0], f"{most} of {count} said so, as many as for others; one more decided")
        return Verdict(choices[0], f"{most} of {count} said so first; the one who was to decide did not")

    return step


def plain(text: str) -> str:
    """Returns an answer as it is counted: without case, marks and blanks around it."""
    return re.sub(r"\s+", " ", re.sub(r"[^\w\s]", "", text)).strip().casefold()


def steps_of(topology: Topology, *, rounds: int, voters: int) -> Step:
    match topology:
        case Topology.DEBATE:
            return debate(rounds)
        case Topology.REFLECTION:
            return reflection
        case Topology.CONSENSUS:
            return consensus(voters)


def messages_of(prompt: Prompt, question: str, said: Sequence[Thought]) -> list[dict[str, str]]:
    """Returns what is sent to the model: who it is, the question, and what it has heard."""
    heard = "\n".join(f"{one.by}: {one.text}" for one in said)
    system = f"You are the {prompt.by}. {prompt.task}"
    user = f"Question: {question}" + (f"\n\nSo far:\n{heard}" if heard else "")
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def think_together(
    client: Sandboxer,
    model: Model,
    question: str,
    topology: Topology,
    *,
    rounds: int = 2,
    voters: int = 3,
    told: Callable[[Thought], object] = lambda thought: None,
) -> Verdict:
    """Returns what they came to. `told` hears every thought as it is there. Raises Failed, Unreachable."""
    step, said = steps_of(topology, rounds=rounds, voters=voters), list[Thought]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while not isinstance(following := step(said), Verdict):
            asked = [
                pool.submit(_immolate, client, model, one.by, messages_of(one, question, said))
                for one in following
            ]
            # All of them end, also where one fails: a future that is asked waits for it.
            failed = [one for one in asked if one.exception() is not None]
            said += [one.result() for one in (failed or asked)]
            for thought in said[-len(asked) :]:
                told(thought)
    return replace(following, thoughts=tuple(_costing(client, said)))


def _costing(client: Sandboxer, said: Sequence[Thought]) -> list[Thought]:
    """Returns them with what each cost, as the account's usage says."""
    cost = Counter[str]()
    for line in client.account.usage().usage:
        cost[line.subject] += line.msats
    return [replace(one, msats=cost[one.sandbox_id]) for one in said]


def _immolate(client: Sandboxer, model: Model, by: str, messages: list[dict[str, str]]) -> Thought:
    """Makes a sandbox, has it think, and destroys it. Its time ends it where this program is killed."""
    endpoint = model if isinstance(model, Endpoint) else None
    sandbox = client.create(
        ttl=TTL,
        resources=SMALL,
        labels={"agent": "immolant"},
        network=None if endpoint is None else endpoint.network,
    )
    try:
        if endpoint is not None:
            endpoint.let_in(sandbox)
        text = think(sandbox, model, messages)
    finally:
        sandbox.destroy()
    return Thought(by=by, text=text, sandbox_id=sandbox.id)
