"""The C parsers under mutation, with the compiler's checkers on; and ours of what a guest says.

The gate runs a few seconds from a fresh seed, which is printed (`pytest -s`, or when it fails). To repeat it:
`guest/build/fuzz-session 3 SEED corpus/*`, or what killed it: `guest/build/fuzz-session 0 1 crash-SEED`.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxer.backends.supervisor.codec import (
    MAX_PAYLOAD,
    Deframer,
    Fields,
    Frame,
    Tag,
    field,
    frame,
    refusal,
    text,
    u32,
    u64,
)
from sandboxer.backends.supervisor.files import PageOfEntries, _file_info
from sandboxer.backends.supervisor.process import read_exit
from sandboxer.kernel.errors import GuestMisbehaved, SandboxerError
from tests.guest.corpus import answers, orders, questions, sessions, shown, write
from tests.support.guest import GUEST

CORPORA: dict[str, Callable[[], dict[str, bytes]]] = {
    "session": sessions,
    "order": orders,
    "names": questions,
    "answer": answers,
    "fuse": shown,
}
SECONDS = 3


@pytest.mark.parametrize("what", CORPORA)
def test_a_few_seconds_of_mutations_find_nothing(what: str, tmp_path: Path) -> None:
    made = subprocess.run(["make", "-s", "-C", GUEST, f"build/fuzz-{what}"], capture_output=True, text=True)
    if made.returncode and "sanitize" in made.stderr:
        pytest.skip(f"this compiler has no checkers: {made.stderr[:200]}")
    assert made.returncode == 0, made.stderr
    seed = random.randrange(1, 1 << 32)
    words = [GUEST / "build" / f"fuzz-{what}", str(SECONDS), str(seed)]
    ran = subprocess.run(
        [*words, *write(CORPORA[what](), tmp_path / "corpus")], cwd=tmp_path, capture_output=True, text=True
    )
    print(f"\n{what}: {ran.stdout.strip()}")
    kept = tmp_path / f"crash-{seed}"
    input_ = kept.read_bytes().hex() if kept.exists() else "none was kept"
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr[-3000:]}\ninput: {input_}"


@pytest.mark.slow
@pytest.mark.parametrize("what", CORPORA)
def test_minutes_of_guided_mutations_find_nothing(what: str, tmp_path: Path) -> None:
    if not shutil.which("clang"):
        pytest.skip("needs clang and libclang-rt (scripts/system-packages ci) for libFuzzer")
    made = subprocess.run(
        ["make", "-s", "-C", GUEST, f"build/libfuzzer-{what}"], capture_output=True, text=True
    )
    if made.returncode and "cannot find" in made.stderr:
        pytest.skip("clang has no libFuzzer here: install libclang-rt")
    assert made.returncode == 0, made.stderr
    write(CORPORA[what](), tmp_path / "corpus")
    seed = random.randrange(1, 1 << 31)
    words = ["-max_total_time=120", f"-seed={seed}", "-max_len=32768", "-print_final_stats=1"]
    ran = subprocess.run(
        [GUEST / "build" / f"libfuzzer-{what}", *words, tmp_path / "corpus"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    print(f"\n{what}, seed {seed}: {ran.stderr[-400:]}")
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr[-4000:]}"


TLVS = st.lists(
    st.one_of(
        st.builds(field, st.sampled_from(list(Tag)), st.binary(max_size=80)),
        st.builds(u32, st.sampled_from(list(Tag)), st.integers(0, 2**32 - 1)),
        st.builds(u64, st.sampled_from(list(Tag)), st.integers(0, 2**64 - 1)),
        st.builds(text, st.sampled_from(list(Tag)), st.text(st.characters(codec="utf-8"), max_size=40)),
        st.binary(max_size=20),
    ),
    max_size=12,
).map(b"".join)
MANY = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(
    data=st.one_of(st.binary(max_size=4000), TLVS.map(lambda payload: frame(Frame.ENTRIES, payload) * 3)),
    cut=st.integers(1, 500),
)
def test_any_bytes_from_a_guest_are_frames_or_misbehaviour(data: bytes, cut: int) -> None:
    """Cut anywhere, it reads the same; what it holds back is bounded."""

    def read(size: int) -> list[tuple[int, bytes]] | None:
        deframer, found = Deframer(), list[tuple[int, bytes]]()
        try:
            for at in range(0, len(data), size):
                found += deframer.feed(data[at : at + size])
        except GuestMisbehaved:
            return None
        assert all(len(payload) <= MAX_PAYLOAD for _, payload in found)
        return [one for one in found if one[0] not in (Frame.STDOUT, Frame.STDERR, Frame.DATA)]

    assert read(cut) == read(len(data) or 1)


@MANY
@given(payload=TLVS)
def test_any_answer_of_a_guest_is_understood_or_misbehaviour(payload: bytes) -> None:
    readers: list[Callable[[], object]] = [
        lambda: _file_info(payload),
        lambda: read_exit(Fields(payload)),
        lambda: PageOfEntries(b"/a", 3).take(payload),
        lambda: PageOfEntries(b"/a", 3).next_after(payload),
    ]
    for reader in readers:
        try:
            reader()
        except GuestMisbehaved:
            continue
    try:
        made = refusal(payload, subject="/x")
    except GuestMisbehaved:
        return
    assert isinstance(made, SandboxerError)
    assert str(made)
