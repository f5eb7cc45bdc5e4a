"""The few programs that the fake's sandboxes have. `python3` does only what a comment in its text says."""

from __future__ import annotations

import re
import signal as signals

from sandboxer.backends.guest import FileKind
from sandboxer.backends.scripted.disk import USERS, Node
from sandboxer.backends.scripted.processes import Stdin
from sandboxer.backends.scripted.shell import Program, Shell
from sandboxer.kernel.errors import IsADirectory

_ESCAPE = re.compile(r"\\([0-7]{1,3}|[nt\\])")
# `# scripted: echo-server 4242`
_DIRECTIVE = re.compile(r"^# scripted: ([a-z-]+)((?: \S+)*)", re.MULTILINE)


async def _echo(shell: Shell, args: list[str]) -> None:
    end = b"\n"
    if args[:1] == ["-n"]:
        args, end = args[1:], b""
    await shell.out(" ".join(args).encode("utf-8", "surrogateescape") + end)


async def _printf(shell: Shell, args: list[str]) -> None:
    """%s alone, and the usual escapes."""
    text = args[0].encode("utf-8", "surrogateescape").decode("latin-1")
    for value in args[1:]:
        text = text.replace("%s", value, 1)
    await shell.out(_ESCAPE.sub(_unescape, text).encode("latin-1", "replace"))


def _unescape(match: re.Match[str]) -> str:
    named = {"n": "\n", "t": "\t", "\\": "\\"}
    return named.get(match[1]) or chr(int(match[1], 8))


async def _cat(shell: Shell, args: list[str]) -> None:
    for name in args:
        _, node = shell.disk.find(shell.path(name))
        if node.kind is FileKind.DIRECTORY:
            raise IsADirectory(path=name, errno_name="EISDIR")
        await shell.out(node.data)
    while not args and (data := await shell.stdin.read()):
        await shell.out(data)


async def _sleep(shell: Shell, args: list[str]) -> None:
    await shell.sleep(float(args[0]))


async def _true(shell: Shell, args: list[str]) -> None:
    """Does nothing, and succeeds."""


async def _false(shell: Shell, args: list[str]) -> int:
    return 1


async def _env(shell: Shell, args: list[str]) -> None:
    lines = [f"{name}={value}\n" for name, value in shell.variables.items() if name.isidentifier()]
    await shell.out("".join(lines).encode("utf-8", "surrogateescape"))


async def _pwd(shell: Shell, args: list[str]) -> None:
    await shell.out(shell.cwd.encode() + b"\n")


async def _id(shell: Shell, args: list[str]) -> None:
    uid = USERS[shell.user]
    name = next(name for name, number in USERS.items() if number == uid)
    words = {"-u": str(uid), "-un": name}
    await shell.out(words.get("".join(args[:1]), f"uid={uid}({name})").encode() + b"\n")


async def _seq(shell: Shell, args: list[str]) -> None:
    first, last = (1, int(args[0])) if len(args) == 1 else (int(args[0]), int(args[1]))
    for start in range(first, last + 1, 10_000):
        chunk = range(start, min(start + 10_000, last + 1))
        await shell.out("".join(f"{number}\n" for number in chunk).encode())


async def _wc(shell: Shell, args: list[str]) -> None:
    """-c or -l of stdin."""
    count = 0
    while data := await shell.stdin.read():
        count += len(data) if "-c" in args else data.count(b"\n")
    await shell.out(f"{count}\n".encode())


async def _mkdir(shell: Shell, args: list[str]) -> None:
    for name in args:
        if name != "-p":
            shell.disk.mkdir(shell.path(name), 0o755, parents="-p" in args)


async def _rm(shell: Shell, args: list[str]) -> None:
    for name in args:
        if not name.startswith("-"):
            shell.disk.remove(
                shell.path(name), recursive=any("r" in arg for arg in args if arg.startswith("-"))
            )


async def _touch(shell: Shell, args: list[str]) -> None:
    for name in args:
        shell.disk.write(shell.path(name), b"")


async def _ln(shell: Shell, args: list[str]) -> None:
    target, link = args[-2:]
    shell.disk.make(shell.path(link), Node(FileKind.SYMLINK, 0o777, target=target))


async def _mkfifo(shell: Shell, args: list[str]) -> None:
    shell.disk.make(shell.path(args[0]), Node(FileKind.OTHER, 0o644))


async def _test(shell: Shell, args: list[str]) -> int:
    """-e, -f, -d, -w on a path."""
    try:
        _, node = shell.disk.find(shell.path(args[1]))
    except Exception:
        return 1
    wanted = {"-f": FileKind.FILE, "-d": FileKind.DIRECTORY}.get(args[0], node.kind)
    return 0 if node.kind is wanted else 1


async def _within(shell: Shell, args: list[str]) -> int:
    """setsid, nohup, exec, env-less wrappers: run the rest."""
    return await shell.run_argv(args)


async def _kill(shell: Shell, args: list[str]) -> None:
    """`kill -NAME $$` only."""
    number = signals.Signals[f"SIG{args[0].lstrip('-')}"]
    shell.job.signal(number)
    await Stdin().read()


async def _python(shell: Shell, args: list[str]) -> int | None:
    directive = _DIRECTIVE.search(args[-1]) if args else None
    if directive is None:
        await shell.err(b"python3: the scripted sandbox has no Python\n")
        return 127
    name, words = directive[1], directive[2].split()
    return await shell.programs[name](shell, words)


PROGRAMS: dict[str, Program] = {
    ":": _true,
    "cat": _cat,
    "echo": _echo,
    "env": _env,
    "exec": _within,
    "false": _false,
    "id": _id,
    "kill": _kill,
    "ln": _ln,
    "mkdir": _mkdir,
    "mkfifo": _mkfifo,
    "nohup": _within,
    "printf": _printf,
    "pwd": _pwd,
    "python3": _python,
    "rm": _rm,
    "seq": _seq,
    "setsid": _within,
    "sleep": _sleep,
    "test": _test,
    "touch": _touch,
    "true": _true,
    "wc": _wc,
}
