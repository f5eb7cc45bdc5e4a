"""PID 1 and the launcher are built so that a bug in them is hard to use, as the programs themselves show."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.guest import GUEST, open_box

PROGRAMS = ("supervisor", "launcher", "stager", "sudo", "client")
# A copy whose size only the run knows: _FORTIFY_SOURCE=3 sees it, 2 does not.
OVERFLOWS = r"""
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    size_t room = 8 * argc, given = strlen(argv[0]);
    char *small = malloc(room);
    memcpy(small, argv[0], given);
    return small[0];
}
"""
SMASHES = r"""
#include <stddef.h>
__attribute__((noinline)) static void fill(volatile char *at, size_t n) { while (n--) at[n] = 1; }
int main(void) { volatile char small[16]; fill(small, 256); return small[3]; }
"""


@pytest.fixture(scope="session")
def built() -> Path:
    subprocess.run(["make", "-s", "-C", GUEST], check=True)
    return GUEST / "build"


def readelf(program: Path) -> str:
    return subprocess.run(
        ["readelf", "-Whld", program], check=True, capture_output=True, text=True, env={"LC_ALL": "C"}
    ).stdout


def flags() -> list[str]:
    made = subprocess.run(
        ["make", "-s", "-C", GUEST, "print-flags"], check=True, capture_output=True, text=True
    )
    return made.stdout.split()


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_a_static_pie_with_full_relro_and_no_page_that_is_written_and_run(
    built: Path, name: str
) -> None:
    reported = readelf(built / name)
    assert re.search(r"Type:\s+DYN", reported), "it is not position independent"
    assert "FLAGS_1" in reported
    assert re.search(r"\(FLAGS_1\)\s+Flags: NOW.*PIE", reported)
    assert "INTERP" not in reported, "it is not static"
    assert "(NEEDED)" not in reported
    assert re.search(r"\(FLAGS\)\s+BIND_NOW", reported)
    assert "GNU_RELRO" in reported
    assert "TEXTREL" not in reported
    segments = re.findall(r"^\s+(\w+)\s+0x\S+ 0x\S+ 0x\S+ 0x\S+ 0x\S+ (R?)\s?(W?)\s?(E?)", reported, re.M)
    assert [one for one in segments if one[0] == "LOAD"]
    assert not [one for one in segments if one[2] and one[3]], "a segment is writable and executable"
    assert [one[3] for one in segments if one[0] == "GNU_STACK"] == [""], "its stack can be run"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_checks_of_copies_and_of_the_stack_are_linked_in(built: Path, name: str) -> None:
    program = (built / name).read_bytes()
    assert b"buffer overflow detected" in program
    assert b"stack smashing detected" in program


@pytest.mark.parametrize("code", [OVERFLOWS, SMASHES], ids=["copy", "stack"])
def test_what_the_flags_promise_happens(tmp_path: Path, code: str) -> None:
    (tmp_path / "probe.c").write_text(code)
    program = tmp_path / "a-name-that-is-longer-than-eight-bytes"
    subprocess.run(["gcc", "-w", tmp_path / "probe.c", "-o", program, *flags()], check=True)
    ended = subprocess.run([program], capture_output=True)
    assert ended.returncode == -signal.SIGABRT
    assert b"detected" in ended.stderr


def test_indirect_jumps_land_where_the_compiler_marked(tmp_path: Path) -> None:
    """libc itself is built without, so only our own objects carry the note."""
    if "-fcf-protection=full" not in flags():
        pytest.skip("this processor has no such marks")
    made = tmp_path / "stdin.o"
    source = GUEST / "supervisor" / "stdin.c"
    linking = ("-Wl,", "-static-pie", "-s")
    without = [flag for flag in flags() if not flag.startswith(linking) or flag.startswith("-std")]
    subprocess.run(["gcc", "-c", source, "-o", made, *without], check=True)
    notes = subprocess.run(["readelf", "-n", made], check=True, capture_output=True, text=True).stdout
    assert "IBT, SHSTK" in notes


def test_its_addresses_differ_from_run_to_run(supervisor: Path) -> None:
    seen = set()
    for _ in range(4):
        with open_box(supervisor) as box:
            maps = Path(f"/proc/{box.pid}/maps").read_text()
            seen.add(next(line.split("-")[0] for line in maps.splitlines() if "supervisor" in line))
    assert len(seen) > 1
