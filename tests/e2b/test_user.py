"""Who commands and files belong to inside, and `sudo`, on real walls through E2B's own Python SDK."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from cryptography import x509
from e2b.exceptions import InvalidArgumentException

from e2b import CommandExitException, PtySize, Sandbox
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import bearer_of
from tests.support.e2b import PATIENT, new_api_key, pointed_at
from tests.support.platforms import Up, real_platform, why_not_real

PATIENCE_S = 30
# Sends what no client of ours would, as a member of the group, and shows that nothing comes of it.
GARBAGE = """
import array, os, random, socket, struct
random.seed(7)
null = os.open("/dev/null", os.O_RDWR)
def head(magic=0x31647573, flags=0, mask=0, args=1, envs=0, size=10):
    return struct.pack("=6I", magic, flags, mask, args, envs, size)
whole = b"root\\0true\\0"
for data, fds in [
    (b"", 0), (b"x", 0), (os.urandom(4096), 4), (head(), 0), (head() + whole, 3), (head(magic=1) + whole, 4),
    (head(size=0), 4), (head(size=2**31) + whole, 4), (head(args=2**32 - 1) + whole, 4),
    (head(args=0) + whole, 4), (head(args=5) + whole, 4), (head(envs=9) + whole, 4),
    (head() + b"root" * 9, 4),
    (head() + b"no" + bytes(8), 4), (head(size=11) + whole + b"x", 4), (head(flags=1) + whole, 4),
] + [(os.urandom(random.randrange(200)), random.randrange(9)) for _ in range(60)]:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect("/run/sandboxer-sudo.socket")
        given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * fds))] if fds else []
        if data:
            line.sendmsg([data], given)
        line.shutdown(socket.SHUT_WR)
        line.settimeout(30)
        try:
            line.recv(64)
        except ConnectionResetError:
            pass
"""


@pytest.fixture(scope="module")
def sandbox(real_key: str) -> Iterator[Sandbox]:
    with Sandbox.create(timeout=600, allow_internet_access=False) as made:
        yield made


def test_commands_and_terminals_are_users_unless_somebody_is_named(sandbox: Sandbox) -> None:
    said = sandbox.commands.run("id -un; id -u; pwd; echo $HOME $USER $E2B_SANDBOX $E2B_SANDBOX_ID").stdout
    assert said == f"user\n1000\n/home/user\n/home/user user true {sandbox.sandbox_id}\n"
    assert sandbox.commands.run("id -un; pwd", user="root").stdout == "root\n/root\n"
    assert sandbox.commands.run("pwd", cwd="..").stdout == "/home\n"
    with pytest.raises(CommandExitException, match="Permission denied"):
        sandbox.commands.run("touch /etc/mine")
    with pytest.raises(InvalidArgumentException, match="no user 'stranger'"):
        sandbox.commands.run("true", user="stranger")


def test_files_belong_to_whom_they_are_written_for(sandbox: Sandbox) -> None:
    sandbox.files.write("mine/deep/file", "1")
    sandbox.files.write("/srv/roots/file", "2", user="root")
    sandbox.files.make_dir("mine/folder")
    said = sandbox.commands.run("cd mine; stat -c '%U:%G' . deep deep/file folder /srv/roots/file").stdout
    assert said.split() == ["user:user"] * 4 + ["root:root"]
    sandbox.commands.run("echo more >> mine/deep/file")
    sandbox.files.rename("mine/deep/file", "mine/made/for/it")
    assert sandbox.commands.run("stat -c %U mine/made mine/made/for/it").stdout.split() == ["user", "user"]
    assert sandbox.files.get_info("mine/made/for/it").owner == "user"
    sandbox.files.write("/srv/roots/file", "3")
    assert sandbox.commands.run("stat -c %U /srv/roots/file").stdout == "user\n"


def test_sudo_makes_root_of_user_although_nothing_gains_privileges(sandbox: Sandbox) -> None:
    facts = "grep -E '^(NoNewPrivs|Seccomp|Cap...):' /proc/self/status"
    assert sandbox.commands.run(f"sudo whoami; sudo {facts}").stdout.split() == [
        "root",
        *sandbox.commands.run(facts, user="root").stdout.split(),
    ]
    assert "NoNewPrivs:\t1" in sandbox.commands.run(f"sudo {facts}").stdout
    sandbox.commands.run("sudo install -d /opt/tool; sudo chown user:user /opt/tool; touch /opt/tool/works")
    sandbox.commands.run(
        "sudo apt-get --version > /dev/null; sudo useradd -m second; sudo -u second touch /tmp/his"
    )
    assert sandbox.commands.run("stat -c '%U %G' /opt/tool /tmp/his").stdout == "user user\nsecond second\n"


def test_sudo_passes_on_input_output_folder_mask_and_how_it_ended(sandbox: Sandbox) -> None:
    said = sandbox.commands.run("cd /tmp; echo in | sudo sh -c 'cat; pwd; echo err >&2'")
    assert (said.stdout, said.stderr) == ("in\n/tmp\n", "err\n")
    assert sandbox.commands.run("head -c 3000000 /dev/zero | sudo cat | wc -c").stdout == "3000000\n"
    assert sandbox.commands.run("umask 077; sudo touch /tmp/m; stat -c %a /tmp/m").stdout == "600\n"
    assert sandbox.commands.run("sudo sh -c 'exit 7'; echo $?").stdout == "7\n"
    assert sandbox.commands.run("sudo sh -c 'kill -9 $$'; echo $?").stdout == "137\n"
    assert sandbox.commands.run("sudo false || sudo true <&- >&-; echo $?").stdout == "0\n"


def test_sudo_understands_the_words_that_scripts_say(sandbox: Sandbox) -> None:
    for words, said in (
        ("A=b sudo -n sh -c 'echo $A $HOME $USER $SUDO_USER $SUDO_UID'", "b /root root user 1000"),
        ("sudo -E sh -c 'echo $HOME $USER'", "/home/user root"),
        ("sudo -nE -H sh -c 'echo $HOME'", "/root"),
        ("sudo A=1 B='2 3' sh -c 'echo $A $B'", "1 2 3"),
        ("sudo -u user -- id -un", "user"),
        ("sudo -u nobody id -un; sudo -u '#65534' id -un", "nobody\nnobody"),
        ("sudo --user=nobody --set-home sh -c 'echo $USER'", "nobody"),
        ("sudo -i pwd; sudo -i sh -c 'echo \"a  b\"'", "/root\na  b"),
        ("sudo -s echo 'a  b;c'", "a  b;c"),
        ("sudo -D / pwd; cd /opt; sudo pwd", "/\n/opt"),
        ("sudo -v && sudo -k && /usr/bin/sudo id -u", "0"),
        ("sudo sudo -u user sudo id -un", "root"),
    ):
        assert sandbox.commands.run(words).stdout.strip() == said, words
    for words, why in (
        ("sudo", "what to run is missing"),
        ("sudo --wonder true", "--wonder is not understood"),
        ("sudo -g x true", "-g is not understood"),
        ("sudo no-such-program", "no-such-program: command not found"),
        ("sudo -u stranger true", "unknown user stranger"),
        ("sudo /etc/passwd", "Permission denied"),
        ("a=$(head -c 120000 /dev/zero | tr '\\0' x); sudo true $a $a $a $a $a $a $a $a $a", "too long"),
        ("sudo true $(seq 1 40000)", "too long"),
    ):
        with pytest.raises(CommandExitException, match=why) as refused:
            sandbox.commands.run(words)
        assert refused.value.exit_code == 1, words


def test_sudo_is_for_the_group_of_user_and_garbage_does_not_end_it(sandbox: Sandbox) -> None:
    with pytest.raises(CommandExitException, match="only members of the group user"):
        sandbox.commands.run("sudo whoami", user="nobody", cwd="/")
    sandbox.files.write("garbage.py", GARBAGE)
    sandbox.commands.run("python3 garbage.py", timeout=PATIENCE_S)
    assert sandbox.commands.run("sudo whoami").stdout == "root\n"


def test_what_sudo_started_ends_with_the_command_that_asked_for_it(sandbox: Sandbox) -> None:
    script = "sudo sh -c 'setsid sh -c \"sleep 98761 & sleep 98762\" & exec sleep 98763'"
    running = sandbox.commands.run(script, background=True)
    _until(lambda: _sleepers(sandbox) == 3, "all three sleep")
    running.kill()
    _until(lambda: _sleepers(sandbox) == 0, "none sleeps")
    with pytest.raises(Exception, match=r"(?i)time|deadline"):
        sandbox.commands.run(script, timeout=2)
    _until(lambda: _sleepers(sandbox) == 0, "none sleeps")
    asked = sandbox.commands.run(
        "exec sudo sh -c 'trap \"echo bye; exit 3\" TERM; while :; do sleep 0.1; done'", background=True
    )
    _until(lambda: "while :" in sandbox.commands.run("ps -eo args", user="root").stdout, "it runs")
    sandbox.commands.run(f"kill {asked.pid}")
    with pytest.raises(CommandExitException) as ended:
        asked.wait()
    assert (ended.value.exit_code, ended.value.stdout) == (3, "bye\n")


def test_a_command_of_sudo_controls_its_terminal(sandbox: Sandbox) -> None:
    with Typing(sandbox) as terminal:
        terminal.say("sudo sleep 98765")
        _until(lambda: _sleepers(sandbox) == 1, "it sleeps")
        terminal.press(b"\x03")
        # What is typed before sudo itself has ended goes to the terminal of its command, and with it.
        _until(lambda: _sleepers(sandbox, "[s]leep") == 0, "sudo has ended")
        terminal.say("echo code=$?")
        terminal.expect("code=130")
        terminal.say("sudo sh -c 'tty < /dev/tty; stty size; read -r line; echo got-$line'")
        terminal.expect("40 120")
        terminal.say("typed")
        terminal.expect("got-typed")
        terminal.say("sudo sleep 98765")
        _until(lambda: _sleepers(sandbox) == 1, "it sleeps again")
        terminal.press(b"\x1a")
        terminal.expect("Stopped")
        terminal.say("fg")
        terminal.expect("sudo sleep 98765", times=3)
        terminal.press(b"\x03")
        # What is typed before sudo itself has ended goes to the terminal of its command, and with it.
        _until(lambda: _sleepers(sandbox, "[s]leep") == 0, "sudo has ended")
        terminal.say("echo code=$?")
        terminal.expect("code=130", times=2)
        terminal.say("sudo bash --norc -ic 'sleep 0 & wait'; stty -a | grep -o ' icanon'; echo end-$((1+1))")
        terminal.expect("end-2")
        assert "no job control" not in terminal.text()
        assert " icanon" in terminal.text()
    assert _sleepers(sandbox) == 0


def test_sudo_is_there_again_after_whatever_ends_or_holds_processes(real_up: Up, real_key: str) -> None:
    with (
        Sandbox.create(timeout=600, allow_internet_access=False) as sandbox,
        Sandboxer(url=real_up.url, api_key=bearer_of(real_key)) as ours,
    ):
        ours.volumes.create("owned", size_mb=32)
        with Sandbox.create(
            timeout=60, allow_internet_access=False, volume_mounts={"/data": "owned"}
        ) as other:
            assert other.commands.run("touch /data/mine; stat -c %U /data").stdout == "user\n"
        mine = ours.sandbox(sandbox.sandbox_id.replace("-", "_"))
        mine.freeze()
        mine.thaw()
        assert sandbox.commands.run("sudo whoami").stdout == "root\n"
        sandbox.pause(keep_memory=False)
        sandbox.connect()
        assert sandbox.commands.run("sudo whoami").stdout == "root\n"
        snapshot = ours.snapshots.take(mine.id, name="before")
        sandbox.commands.run("rm /usr/local/bin/sudo; pkill -9 -x sudo", user="root")
        (clone,) = ours.snapshots.clone(snapshot.id).sandboxes
        with Sandbox.connect(clone.id.replace("_", "-")) as cloned:
            assert cloned.commands.run("sudo whoami").stdout == "root\n"
        ours.snapshots.restore(snapshot.id)
        assert sandbox.commands.run("sudo whoami").stdout == "root\n"
        sandbox.commands.run("sudo sed -i s/^user:/other:/ /etc/passwd")
        with pytest.raises(InvalidArgumentException, match="no user 'user'"):
            sandbox.commands.run("true")


def test_a_new_disk_begins_with_sudo_and_what_trusts_its_authority(real_key: str) -> None:
    bundle = "/etc/sandboxer/egress/ca-bundle.pem"
    own = "/usr/local/share/ca-certificates/sandboxer-egress.crt"
    placed = f"/usr/local/bin/sudo {bundle} {own} /etc/apt/apt.conf.d/95sandboxer-egress"
    with Sandbox.create(timeout=120) as made:
        said = made.commands.run(f"stat -c '%a %U:%G' {placed} /usr/local /usr/local/bin /etc/apt").stdout
        assert said.splitlines() == ["755 root:root", *["644 root:root"] * 3, *["755 root:root"] * 3]
        certificate = made.files.read(own)
        name = x509.load_pem_x509_certificate(certificate.encode()).subject.rfc4514_string()
        assert name == f"CN=egress of {made.sandbox_id.replace('-', '_')}"
        trusted = made.files.read(bundle)
        assert trusted.endswith(certificate)
        assert trusted.count("BEGIN CERTIFICATE") > 50
        # What the image has beside them is still there.
        assert made.commands.run("ls /etc/apt/apt.conf.d | wc -l; command -v bash").stdout.split()[0] != "1"


def test_one_that_stood_ready_has_a_sudo_and_an_authority_of_its_own(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if why := why_not_real():
        pytest.skip(why)
    settings = {"SANDBOXER_CHARGING": "false", "SANDBOXER_WARM_POOL": '{"profile.e2b": 1}', **PATIENT}
    state = tmp_path_factory.mktemp("e2b-warm") / "state"
    with (
        real_platform(state, settings=settings) as up,
        pointed_at(up, new_api_key(up)),
        Sandboxer(owner_file=up.owner_file, url=up.url) as owner,
    ):
        # The first spare may be older than what is put into them.
        for _ in range(2):
            _until(lambda: owner.status.cluster().available == 1, "one stands ready")
            sandbox = Sandbox.create(timeout=120)
            shown = owner.sandbox(sandbox.sandbox_id.replace("-", "_")).refresh()
            assert "claim" in shown.timings_ms
            assert sandbox.commands.run("sudo whoami").stdout == "root\n"
            trusted = sandbox.files.read("/usr/local/share/ca-certificates/sandboxer-egress.crt")
            assert x509.load_pem_x509_certificate(trusted.encode()).subject.rfc4514_string() == (
                f"CN=egress of {shown.id}"
            )
            sandbox.kill()


class Typing:
    """A terminal of `user`, read meanwhile."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._seen = bytearray()

    def __enter__(self) -> Typing:
        self._handle = self._sandbox.pty.create(PtySize(rows=40, cols=120))
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.say("exit 0")
        self._reading.join(PATIENCE_S)

    def _read(self) -> None:
        self._handle.wait(on_pty=self._seen.extend)

    def say(self, line: str) -> None:
        self.press(line.encode() + b"\n")

    def press(self, keys: bytes) -> None:
        self._sandbox.pty.send_stdin(self._handle.pid, keys)

    def expect(self, text: str, times: int = 1) -> None:
        _until(lambda: self.text().count(text) >= times, lambda: f"{text} in {self.text()}")

    def text(self) -> str:
        return bytes(self._seen).decode(errors="replace")


def _sleepers(sandbox: Sandbox, called: str = "^sleep") -> int:
    return int(sandbox.commands.run(f"ps -eo args | grep -c '{called} 9876' || true", user="root").stdout)


def _until(is_so: Callable[[], bool], what: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(0.2)  # requests are counted
