"""Decisions of clones and immolants: a log that shows what was changed, whose task it is, what was voted."""

from __future__ import annotations

import pytest

from sandboxer.sdk.agent.immolants import Prompt, Thought, Verdict, consensus, debate, plain, reflection
from sandboxer.sdk.agent.models import Failed, Scripted, plan_of
from sandboxer.sdk.agent.notebook import added_to, fault_of, open_task


def log(*acts: str) -> str:
    text = ""
    for act in acts:
        text = added_to(text, act, "shadow-1", "2026-11-18T20:00:00+00:00")
    return text


def test_a_log_is_whole_until_a_line_is_changed_taken_out_doubled_or_cut() -> None:
    whole = log("a", "b", "c")
    lines = whole.splitlines(keepends=True)
    assert fault_of("", "shadow-1") is None
    assert fault_of(whole, "shadow-1") is None
    assert fault_of(whole.replace('"b"', '"B"'), "shadow-1") == "line 3 does not follow the one before it"
    assert fault_of(lines[0] + lines[2], "shadow-1") == "line 2 does not follow the one before it"
    assert fault_of(whole + lines[2], "shadow-1") == "line 4 does not follow the one before it"
    assert fault_of(whole[:-1], "shadow-1") == "its last line is cut off"
    assert fault_of(whole, "shadow-2") == "line 1 does not follow the one before it"
    assert fault_of("[]\n", "shadow-1") == "line 1 cannot be read"
    assert fault_of("[" * 100_000 + "\n", "shadow-1") == "line 1 cannot be read"


def test_a_clone_goes_on_with_its_own_task_and_never_takes_anothers() -> None:
    tasks = ["a", "b", "c"]
    assert open_task(tasks, {"b": "one\n"}, [], "one", None) == "b"
    assert open_task(tasks, {"a": "two\n", "b": "two\n"}, [], "one", None) == "c"
    assert open_task(tasks, {"a": "one\n"}, ["a", "b", "c"], "one", None) is None
    assert open_task(tasks, {"a": "two\n"}, [], "one", "a") is None
    assert open_task(tasks, {}, [], "one", "c") == "c"
    assert open_task(["check-1"], {}, [], "one", None) is None
    assert open_task(["check-1"], {}, [], "one", "check-1") == "check-1"


def test_clones_begin_in_different_places() -> None:
    tasks = [f"task-{number}" for number in range(20)]
    assert len({open_task(tasks, {}, [], f"shadow-{number}", None) for number in range(8)}) > 4


def said(*texts: str) -> list[Thought]:
    return [Thought(by="x", text=text, sandbox_id="sbx_x") for text in texts]


def test_a_debate_is_two_sides_in_turn_and_a_judge() -> None:
    step, heard, by = debate(2), said(), []
    while not isinstance(following := step(heard), Verdict):
        by += [one.by for one in following]
        heard += said("word")
    assert by == ["speaker for it", "speaker against it"] * 2 + ["judge"]
    assert following.answer == "word"


def test_a_reflection_is_an_answer_its_criticism_and_another_answer() -> None:
    assert [one.by for n in range(3) for one in _prompts(reflection(said(*"abc"[:n])))] == [
        "author",
        "critic",
        "editor",
    ]
    assert reflection(said("a", "b", "c")) == Verdict("c", "an answer was criticised and written anew")


def _prompts(step: object) -> list[Prompt]:
    assert isinstance(step, list)
    return step


@pytest.mark.parametrize(
    ("ballots", "answer", "how"),
    [
        (["Paris", "paris.", "Lyon"], "Paris", "2 of 3 said so"),
        (["a", "a", "a"], "a", "3 of 3 said so"),
        (["a", "b", "B", "a", " b"], "b", "3 of 5 said so"),
        (["a", "b", "b!"], "b", "2 of 3 said so"),
        (["a", "b", "B!", "A"], None, ""),
        (["a", "b", "c"], None, ""),
    ],
)
def test_most_votes_win_and_a_tie_is_decided_by_one_more(
    ballots: list[str], answer: str | None, how: str
) -> None:
    step = consensus(len(ballots))
    assert len(_prompts(step([]))) == len(ballots)
    found = step(said(*ballots))
    if answer is not None:
        assert (found.answer, found.how) == (answer, how)  # type: ignore[union-attr]
        return
    (prompt,) = _prompts(found)
    assert prompt.by == "tie-breaker"
    assert "a | b" in prompt.task
    decided, undecided = step(said(*ballots, "B.")), step(said(*ballots, "neither"))
    assert isinstance(decided, Verdict)
    assert (plain(decided.answer), decided.how.endswith("one more decided")) == ("b", True)
    assert isinstance(undecided, Verdict)
    assert (undecided.answer, undecided.how.endswith("did not")) == ("a", True)


def test_a_scripted_model_answers_in_turn_and_a_plan_that_is_none_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = Scripted([{"when": "who", "say": ["one", "two"]}, {"when": r"say (\w+)", "say": r"\1!"}])

    def ask(text: str) -> str:
        asked = {"messages": [{"role": "user", "content": text}]}
        return str(model.answer(asked)["choices"][0]["message"]["content"])

    try:
        assert [ask("who"), ask("who"), ask("who"), ask("say hi"), ask("?")] == [
            "one",
            "two",
            "two",
            "hi!",
            "",
        ]
    finally:
        model._server.server_close()
    file = tmp_path / "plan.json"
    for text in ("{", '[{"when": "("}]', '[{"when": "a", "say": []}]', '[{"when": "(", "say": "a"}]'):
        file.write_text(text)
        with pytest.raises(Failed, match="is no plan"):
            plan_of(file)
