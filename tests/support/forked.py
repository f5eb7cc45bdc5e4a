"""`sandboxer …` for whoever starts a process by its words: the command runs forked from `forking`, on the
streams, in the folder and with the environment of this one, which hands signals on and ends as it does.

    python -S tests/support/forked.py SOCKET WORDS…

Loads next to nothing, which is what it is for.
"""

import json
import os
import signal
import socket
import sys

HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


def main(path: str, words: list[str]) -> None:
    order = {"words": words, "env": {**os.environ}, "cwd": os.getcwd(), "in_new_session": False}
    packed = json.dumps({**order, "program": "sandboxer.edges.cli.main"}).encode()
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    socket.send_fds(line, [len(packed).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(packed)
    pid = int.from_bytes(line.recv(4, socket.MSG_WAITALL), "big")
    for number in HANDED_ON:
        signal.signal(number, lambda given, _: os.kill(pid, given))
    # Whoever reads our output waits until nobody has it open.
    for fd in (0, 1, 2):
        os.close(fd)
    code = int(line.makefile("rb").read() or b"-9")
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main(sys.argv[1], sys.argv[2:])
