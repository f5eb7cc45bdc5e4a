"""The keeper runs inside a sandbox, between the platform and one interpreter, and reports what happens.

The interpreter's output never shares a stream with the keeper's reports: it prints into pipes that end here,
and its driver answers on a pipe of its own. The keeper writes one JSON line for each event, with bytes in
base 64: whatever code prints, a reader who lost its position finds it again at the next line.

It uses the standard library only and nothing of the platform: its source is passed to the sandbox's own
python3.
"""

import array
import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from typing import Any

CHUNK = 32768
# The size limit of one answer of a driver; pictures are the largest.
MOST_ANSWER = 4 << 20
# The size limit of all forms of one result together, as they are reported.
MOST_SHOWN = 5 << 20
MOST_LINE = 16 << 20
# How long the end of a line is waited for that was written without it.
LINE_S = 0.01
# Output between two cells (from what a cell left running) is reported with the next one.
MOST_STRAY = 65536
FAULT = {"ename": "name", "evalue": "message", "trace": "traceback"}


def say(**words: Any) -> None:
    line = json.dumps(words, separators=(",", ":")).encode() + b"\n"
    at = 0
    while at < len(line):
        at += os.write(1, line[at : at + CHUNK])


class Keeper:
    def __init__(self, order: dict[str, Any]) -> None:
        self.mode = order["mode"]
        # A signal would end the interpreter itself, so only its children get one.
        self.spares_itself = self.mode == "flag" or bool(order.get("spares_itself"))
        self.cell: dict[str, Any] | None = None
        self.last = 0
        self.left = {1: 0, 2: 0}
        self.lost = {1: 0, 2: 0}
        self.stray: list[tuple[int, bytes]] = []
        self.results: dict[str, str] = {}
        self.shown = 0
        self.fault: dict[str, str] = {}
        self.answer = bytearray()
        # How many bytes follow of an answer that is too large.
        self.unwanted = 0
        self.outbox = bytearray()
        self.report = b""
        self.inbox = bytearray()
        # What it printed before it was ready; it explains why it never became ready.
        self.early = b""
        self.flag = f"/dev/shm/.sandboxer-{os.getpid()}"
        self.start(order)

    def start(self, order: dict[str, Any]) -> None:
        code_r, self.code_w = os.pipe()
        self.control_r, control_w = os.pipe()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        self.control = f"/proc/{os.getpid()}/fd/{control_w}"
        script = os.memfd_create("driver", 0)
        os.write(script, order["driver"].encode())
        os.lseek(script, 0, os.SEEK_SET)
        for fd in (code_r, control_w, script):
            os.set_inheritable(fd, True)
        names = {
            "{driver}": f"/dev/fd/{script}",
            "{code}": str(code_r),
            "{control}": str(control_w),
            "{flag}": self.flag,
            "{path}": self.control,
        }
        argv = []
        for word in order["argv"]:
            if word == "{source}":
                word = (
                    order["driver"].replace("@CODE@", f"/dev/fd/{code_r}").replace("@CONTROL@", self.control)
                )
                argv.append(word)
                continue
            for mark, text in names.items():
                word = word.replace(mark, text)
            argv.append(word)
        own = {
            "SANDBOXER_CODE": str(code_r),
            "SANDBOXER_CONTROL": str(control_w),
            "SANDBOXER_FLAG": self.flag,
        }
        self.child = subprocess.Popen(
            argv,
            stdin=code_r if self.mode == "shell" else subprocess.DEVNULL,
            stdout=out_w,
            stderr=err_w,
            pass_fds=(control_w,) if self.mode == "shell" else (code_r, control_w, script),
            env={**os.environ, **order.get("env", {}), **own},
            start_new_session=True,
        )
        for fd in (code_r, out_w, err_w, script):
            os.close(fd)
        # Kept open in shell mode: a shell that closes its descriptors answers through this path.
        self.control_w = control_w
        self.pidfd = os.pidfd_open(self.child.pid)
        self.streams = {out_r: 1, err_r: 2}
        for fd in (self.code_w, self.control_r, out_r, err_r):
            os.set_blocking(fd, False)
        if self.mode == "shell":
            self.end_line = order["end"].replace("{path}", self.control)
            self.page = os.memfd_create("cell", 0)
            self.run_line = order["run"].replace("{page}", f"/proc/{os.getpid()}/fd/{self.page}")
            first = (
                order["first"].replace("{path}", self.control)
                + "\n"
                + self.end_line.replace("{n}", "0")
                + "\n"
            )
            self.outbox += first.encode()
        self.quiet = True

    def run(self) -> None:
        poll = select.poll()
        for fd in (0, self.control_r, self.pidfd, *self.streams):
            poll.register(fd, select.POLLIN)
        writing = False
        while True:
            self.flush()
            if bool(self.outbox) != writing:
                writing = not writing
                if writing:
                    poll.register(self.code_w, select.POLLOUT)
                else:
                    poll.unregister(self.code_w)
            # Nothing signals that a shell has read its line, so it is checked again soon.
            ready = {fd for fd, _ in poll.poll(2 if self.report and not writing else None)}
            for fd, stream in list(self.streams.items()):
                if fd in ready and not self.read_output(fd, stream):
                    poll.unregister(fd)
                    del self.streams[fd]
            if self.control_r in ready:
                self.read_answers()
            if self.pidfd in ready:
                return self.died()
            if 0 in ready and not self.read_orders():
                self.kill()
                return None

    # -- to the interpreter

    def flush(self) -> None:
        while self.outbox:
            try:
                del self.outbox[: os.write(self.code_w, self.outbox[:CHUNK])]
            except BlockingIOError:
                return
            except OSError:
                self.outbox.clear()
        if self.report and self.taken():
            # Only now, because a shell that abandons a line drops everything else that it had read with it.
            self.outbox += self.report
            self.report = b""
            self.flush()

    def taken(self) -> bool:
        waiting = array.array("i", [0])
        fcntl.ioctl(self.code_w, termios.FIONREAD, waiting)
        return waiting[0] == 0

    def begin(self, order: dict[str, Any]) -> None:
        n = self.last = order["n"]
        self.cell = order
        self.left = {1: order["limit"], 2: order["limit"]}
        self.lost = {1: 0, 2: 0}
        self.results, self.shown, self.fault = {}, 0, {}
        with contextlib.suppress(OSError):
            os.unlink(self.flag)
        say(t="begin", n=n, code=order["code"][:2000], m=order.get("m"))
        stray, self.stray = self.stray, []
        for stream, data in stray:
            self.tell(stream, data)
        if self.mode == "shell":
            # Shells that cannot quote a newline read the code from a file in memory.
            os.ftruncate(self.page, 0)
            os.pwrite(self.page, order["code"].encode("utf-8", "surrogatepass") + b"\n", 0)
            code = order["code"].replace("'", "'\\''")
            self.outbox += (self.run_line.replace("{code}", code) + "\n").encode("utf-8", "surrogatepass")
            self.report = (self.end_line.replace("{n}", str(n)) + "\n").encode()
        else:
            code = order["code"].encode("utf-8", "surrogatepass")
            is_counted = self.mode != "nul"
            self.outbox += (b"%d %d\n" % (n, len(code)) + code) if is_counted else b"%d\n%b\0" % (n, code)

    def interrupt(self) -> None:
        if self.cell is None:
            return
        try:
            with open(self.flag, "w"):
                pass
        except OSError:
            pass
        if self.spares_itself:
            for pid in self.descendants():
                self.send(os.kill, pid)
        else:
            self.send(os.killpg, self.child.pid)
        if self.mode == "shell" and not self.report:
            self.report = (self.end_line.replace("{n}", str(self.cell["n"])) + "\n").encode()

    def descendants(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat") as stat:
                        parent = int(stat.read().rpartition(")")[2].split()[1])
                except (OSError, ValueError):
                    continue
                children.setdefault(parent, []).append(int(name))
        found: list[int] = []
        look = [self.child.pid]
        while look:
            below = children.get(look.pop(), [])
            found += below
            look += below
        return found

    @staticmethod
    def send(act: Any, target: int) -> None:
        with contextlib.suppress(OSError):
            act(target, signal.SIGINT)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.child.pid, signal.SIGKILL)

    # -- from the interpreter

    def read_output(self, fd: int, stream: int) -> bool:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            return False
        data += self.rest_of_line(fd, data)
        if self.cell is not None:
            self.tell(stream, data)
        elif self.quiet:
            self.early = (self.early + data)[-2000:]
        elif sum(len(kept) for _, kept in self.stray) < MOST_STRAY:
            self.stray.append((stream, data))
        return True

    @staticmethod
    def rest_of_line(fd: int, data: bytes) -> bytes:
        """Reads what follows at once: some interpreters, R among them, write a line in pieces."""
        rest, until = b"", time.monotonic() + LINE_S
        while not (rest or data).endswith(b"\n") and len(data) + len(rest) < CHUNK:
            if not select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
                break
            more = os.read(fd, CHUNK)
            if not more:
                break
            rest += more
        return rest

    def tell(self, stream: int, data: bytes) -> None:
        assert self.cell is not None
        fits = data[: self.left[stream]]
        self.left[stream] -= len(fits)
        self.lost[stream] += len(data) - len(fits)
        if fits:
            say(t="out", n=self.cell["n"], s=stream, d=base64.b64encode(fits).decode())

    def drain(self) -> None:
        """Reads what was printed before the answer, which is in the pipes already."""
        for fd, stream in self.streams.items():
            # A child that never stops printing must not keep the cell from ending.
            for _ in range(64):
                if not select.select([fd], [], [], 0)[0] or not self.read_output(fd, stream):
                    break

    def read_answers(self) -> None:
        try:
            data = os.read(self.control_r, CHUNK)
        except OSError:
            return
        passed = min(self.unwanted, len(data))
        self.unwanted -= passed
        self.answer += data[passed:]
        while True:
            head, found, _ = bytes(self.answer[:200]).partition(b"\n")
            if not found:
                if len(self.answer) > 200:
                    self.answer.clear()
                return
            words = head.decode("ascii", "replace").split()
            if len(words) >= 2 and words[0] == "end":
                del self.answer[: len(head) + 1]
                self.end(words)
                continue
            if len(words) != 2 or not words[1].isdigit():
                # Not from a driver, but from code that found this pipe: the line is skipped.
                del self.answer[: len(head) + 1]
                continue
            size = len(head) + 1 + int(words[1])
            if int(words[1]) > MOST_ANSWER:
                self.unwanted = max(0, size - len(self.answer))
                del self.answer[:size]
                continue
            if len(self.answer) < size:
                return
            text = bytes(self.answer[len(head) + 1 : size]).decode("utf-8", "replace")
            del self.answer[:size]
            self.take(words[0], text)

    def take(self, word: str, text: str) -> None:
        if word == "flush":
            self.show(is_main=text == "main")
        elif word in FAULT:
            self.fault[FAULT[word]] = text
        elif word == "value" or "/" in word:
            # A form that has no room left is dropped, and the others are shown.
            size = len(json.dumps(text))
            if self.shown + size <= MOST_SHOWN:
                self.shown += size
                self.results["text/plain" if word == "value" else word] = text

    def show(self, *, is_main: bool) -> None:
        """Reports a result: the main one is what the cell comes to, others were displayed on the way."""
        if self.results and self.cell is not None:
            self.drain()
            say(t="result", n=self.cell["n"], m=self.results, main=is_main)
        self.results, self.shown = {}, 0

    def end(self, words: list[str]) -> None:
        if words[2:] == ["0"] and self.cell is None and self.quiet:
            self.drain()
            self.quiet = False
            say(t="ready")
            return
        if self.cell is None or words[2:] != [str(self.cell["n"])]:
            return
        self.show(is_main=True)
        self.drain()
        self.report = b""
        status = int(words[1]) if words[1].lstrip("-").isdigit() else 1
        say(
            t="done",
            n=self.cell["n"],
            status=status,
            fault=self.fault or None,
            lost=[self.lost[1], self.lost[2]],
        )
        self.cell = None

    def died(self) -> None:
        self.drain()
        code = self.child.wait()
        lost = [self.lost[1], self.lost[2]]
        say(t="died", n=self.last, code=code, lost=lost, why=self.early.decode("utf-8", "replace"))
        # The keeper stays: the platform ends everything that this session started.
        while os.read(0, CHUNK):
            pass

    # -- from the platform

    def read_orders(self) -> bool:
        data = os.read(0, 1 << 20)
        if not data:
            return False
        self.inbox += data
        while (at := self.inbox.find(b"\n")) >= 0:
            order = json.loads(self.inbox[:at])
            del self.inbox[: at + 1]
            if order["op"] == "cell" and self.cell is None:
                self.begin(order)
            elif order["op"] == "interrupt":
                self.interrupt()
            elif order["op"] == "hello":
                running = None if self.cell is None else self.cell["n"]
                say(t="hello", n=self.last, running=running, ready=not self.quiet, at=time.time())
        return True


def first_order() -> dict[str, Any]:
    line = bytearray()
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
        if len(line) > MOST_LINE:
            sys.exit(2)
    order: dict[str, Any] = json.loads(line)
    return order


# A handler instead of ignoring the signal, which would be inherited: the interpreter could then never be
# interrupted.
signal.signal(signal.SIGINT, lambda *_: None)
try:
    Keeper(first_order()).run()
except (OSError, subprocess.SubprocessError) as error:
    say(t="failed", why=str(error)[:2000])
