"""The table of a sandbox's life: whole, with one door, and drawn as it is."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sandboxer.kernel.errors import IllegalTransition
from sandboxer.sandboxes.lifecycle import LIVE, TRANSITIONS, Signal, State, next_state


@pytest.mark.parametrize(("state", "signal"), tuple(itertools.product(State, Signal)))
def test_every_cell_of_the_grid_is_a_move_or_a_refusal(state: State, signal: Signal) -> None:
    if (state, signal) in TRANSITIONS:
        assert next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition) as refused:
            next_state(state, signal)
        assert refused.value.facts == {"signal": signal.value, "state": state.value}


def test_nothing_leaves_destroyed() -> None:
    assert not [signal for state, signal in TRANSITIONS if state is State.DESTROYED]


def test_destroyed_can_be_reached_from_every_state() -> None:
    for start in State:
        seen, edge = {start}, {start}
        while edge:
            edge = {t for (s, _), t in TRANSITIONS.items() if s in edge} - seen
            seen |= edge
        assert State.DESTROYED in seen


def test_every_state_but_requested_is_entered_by_something() -> None:
    assert set(State) - set(TRANSITIONS.values()) == {State.REQUESTED}


def test_every_signal_but_the_first_moves_something() -> None:
    assert set(Signal) - {signal for _, signal in TRANSITIONS} == {Signal.REQUEST}


@pytest.mark.parametrize("state", sorted(LIVE))
def test_a_living_sandbox_can_expire_be_lost_and_be_destroyed(state: State) -> None:
    assert next_state(state, Signal.EXPIRE) is State.EXPIRED
    assert next_state(state, Signal.LOST) is State.FAILED
    assert next_state(state, Signal.DESTROY) is State.DESTROYING


def test_the_diagram_draws_every_edge_once() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md").read_text()
    diagram = page.partition("<!-- lifecycle:begin -->")[2].partition("<!-- lifecycle:end -->")[0]
    drawn = [line.strip() for line in diagram.splitlines() if "-->" in line and "[*]" not in line]
    edges = [(line.split(": ")[0], name) for line in drawn for name in line.split(": ")[1].split(", ")]
    assert sorted(edges) == sorted(
        (f"{state} --> {target}", signal.value) for (state, signal), target in TRANSITIONS.items()
    )
