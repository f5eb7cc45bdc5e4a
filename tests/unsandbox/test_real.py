"""unsandbox's wire on real walls, by the name that is written into its clients."""

from __future__ import annotations

import base64
from functools import partial

from tests.support.unsandbox import Client

SERVER = """#!/usr/bin/env python3
import http.server, os
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ.get("GREETING", "none").encode())
http.server.HTTPServer(("", 8080), Hello).serve_forever()
"""
# Leaves what serves behind, and ends.
INSTALLER = """cd /tmp
python3 -m http.server 8081 &
echo installed
"""


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_code_runs_once_and_is_told_in_their_words(real: Client) -> None:
    files = [{"filename": "data.txt", "content": encoded("six")}]
    code = "import os; print(open('data.txt').read(), os.environ['A']); raise SystemExit(3)"
    asked = {"language": "python", "code": code, "input_files": files, "env": {"A": "b"}}
    done = real.ask("POST", "/execute", asked)
    assert (done["stdout"], done["exit_code"], done["success"]) == ("six b\n", 3, False)
    assert (done["status"], done["network_mode"], done["language"]) == ("completed", "zerotrust", "python")
    assert done["total_time_ms"] > 0


def test_what_code_made_comes_back(real: Client) -> None:
    asked = {"language": "bash", "code": "echo made > out.txt", "return_artifact": True}
    done = real.ask("POST", "/execute", asked)
    assert done["artifact"] == {
        "type": "base64",
        "filename": "out.txt",
        "data": encoded("made\n"),
        "content_base64": encoded("made\n"),
    }


def test_code_is_sent_as_it_is_and_its_first_line_says_who_runs_it(real: Client) -> None:
    done = real.ask("POST", "/run", b"#!/bin/bash\necho $((6 * 7))\n")
    assert (done["stdout"], done["language"]) == ("42\n", "bash")


def test_a_job_is_queued_asked_about_and_cancelled(real: Client) -> None:
    queued = real.ask("POST", "/execute/async", {"language": "bash", "code": "echo done", "ttl": 300})
    assert queued["status"] in ("pending", "running")
    done = real.wait(f"/jobs/{queued['job_id']}", "completed")
    assert (done["stdout"], done["success"]) == ("done\n", True)
    endless = real.ask("POST", "/run/async", b"#!/bin/sh\necho began; exec sleep 600\n")
    real.wait(f"/jobs/{endless['job_id']}", "running")
    ended = real.ask("DELETE", f"/jobs/{endless['job_id']}")
    assert (ended["status"], ended["success"]) == ("cancelled", False)
    assert {one["job_id"] for one in real.ask("GET", "/jobs")["jobs"]} >= {endless["job_id"]}


def test_a_session_lives_through_all_their_verbs(real: Client) -> None:
    files = [{"filename": "in.txt", "content": encoded("given")}]
    made = real.ask("POST", "/sessions", {"shell": "bash", "ttl": 600, "input_files": files})
    path = f"/sessions/{made['session_id']}"
    assert made["status"] == "running"

    def say(command: str) -> str:
        return str(real.ask("POST", f"{path}/shell", {"command": command})["stdout"])

    assert say("cat /tmp/in.txt; X=1") == "given"
    assert say("echo $X; echo kept > /workspace/file") == "1\n"
    failed = real.ask("POST", f"{path}/execute", {"command": "(exit 7)"})
    assert (failed["exit_code"], failed["success"]) == (7, False)

    taken = real.ask("POST", f"{path}/snapshot", {"name": "one"})
    assert (taken["source_type"], taken["source_id"], taken["locked"]) == ("session", made["id"], False)
    assert say("echo lost > /workspace/file; cat /workspace/file") == "lost\n"
    real.ask("POST", f"{path}/restore", {"snapshot_id": taken["id"]})
    assert say("cat /workspace/file") == "kept\n"

    cloned = real.ask("POST", f"/snapshots/{taken['id']}/clone", {"type": "session", "shell": "bash"})
    other = f"/sessions/{cloned['session_id']}"
    seen = real.ask("POST", f"{other}/shell", {"command": "cat /workspace/file"})
    assert seen["stdout"] == "kept\n"
    assert real.ask("DELETE", other)["status"] == "terminated"

    assert real.ask("POST", f"{path}/freeze", {})["status"] == "frozen"
    assert real.ask("GET", path)["status"] == "frozen"
    assert real.ask("POST", f"{path}/unfreeze", {})["status"] == "running"
    real.ask("POST", f"{path}/boost", {"vcpu": 2})
    real.ask("POST", f"{path}/unboost", {})
    assert made["id"] in {one["id"] for one in real.ask("GET", "/sessions")["sessions"]}
    real.ask("DELETE", path)
    assert made["id"] not in {one["id"] for one in real.ask("GET", "/sessions")["sessions"]}
    assert real.ask("DELETE", f"/snapshots/{taken['id']}")["id"] == taken["id"]


def test_a_session_of_a_language_runs_commands_beside_it(real: Client) -> None:
    made = real.ask("POST", "/sessions", {"language": "python", "network_mode": "zero-trust"})
    done = real.ask("POST", f"/sessions/{made['id']}/shell", {"command": "echo beside"})
    assert (done["stdout"], done["success"]) == ("beside\n", True)
    real.ask("DELETE", f"/sessions/{made['id']}")


def test_a_service_lives_through_all_their_verbs(real: Client) -> None:
    made = real.ask("POST", "/services", {"name": "hello", "ports": [8080], "bootstrap_content": SERVER})
    path = f"/services/{made['service_id']}"
    running = real.wait(path, "running", "failed", field="state")
    assert (running["state"], running["ports"], running["name"]) == ("running", [8080], "hello")

    def greets() -> str:
        asked = {
            "command": "python3 -c \"import urllib.request as u; print(u.urlopen('http://localhost:8080')"
        }
        asked["command"] += '.read().decode())"'
        return str(real.ask("POST", f"{path}/execute", asked)["stdout"]).strip()

    assert greets() == "none"
    assert real.ask("PUT", f"{path}/env", b"GREETING=hi\n")["count"] == 1
    assert real.ask("POST", f"{path}/env", {"env": "GREETING=hello\nB=2"})["keys"] == ["B", "GREETING"]
    assert real.ask("GET", f"{path}/env")["has_vault"] is True
    assert real.send("POST", f"{path}/env/export", {}).status_code >= 400
    real.ask("POST", f"{path}/redeploy", {})
    real.wait(path, "running", field="state")
    assert greets() == "hello"
    assert real.ask("DELETE", f"{path}/env", {"keys": ["B"]})["count"] == 1
    assert real.ask("DELETE", f"{path}/env")["has_vault"] is False
    assert real.ask("PATCH", path, {"unfreeze_on_demand": False})["unfreeze_on_demand"] is False
    assert real.ask("POST", f"{path}/freeze", {})["state"] == "frozen"
    real.ask("POST", f"{path}/unfreeze", {})
    real.wait(path, "running", field="state")
    assert "log" in real.ask("GET", f"{path}/logs?all=true")

    image = real.ask("POST", "/images", {"source_type": "service", "source_id": made["id"], "name": "hello"})
    assert real.ask("GET", "/images/owned")["count"] == 1
    assert real.ask("POST", f"/images/{image['id']}/visibility", {"visibility": "unlisted"})[
        "visibility"
    ] == ("unlisted")
    real.ask("DELETE", path)
    assert real.ask("GET", "/services")["services"] == []
    assert real.ask("DELETE", f"/images/{image['id']}")["id"] == image["id"]


def _has_run(times: int, seen: dict[str, str]) -> bool:
    return seen["log"].count("installed\n") == times


def test_a_script_that_ends_well_leaves_its_machine_as_it_is_until_the_next(real: Client) -> None:
    asked = {"name": "installed", "ports": [8081], "bootstrap": INSTALLER, "network_mode": "zerotrust"}
    path = f"/services/{real.ask('POST', '/services', asked)['service_id']}"
    look = "import urllib.request as u; print(u.urlopen('http://localhost:8081').status)"
    for times in (1, 2):
        has_run = partial(_has_run, times)
        log = real.until(f"{path}/logs?all=true", has_run)["log"]
        real.wait(path, "running", field="state")
        assert real.ask("POST", f"{path}/execute", {"command": f'python3 -c "{look}"'})["stdout"] == "200\n"
        assert "in use" not in log
        real.ask("POST", f"{path}/redeploy", {})
    real.ask("DELETE", path)
