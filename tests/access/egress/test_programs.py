"""Programs as people have them, which ask no variable for a proxy, in a real sandbox: a driver of JDBC with a
real PostgreSQL far away, and a static program of Go, which brings its own resolver.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.access.egress.world import ADDRESS, far_away, listening
from tests.support.egress_inside import names, run, served, world  # noqa: F401
from tests.support.http.real import IMAGES
from tests.support.http.served import Served
from tests.support.postgres import FAST, running_postgres, why_no_postgres

pytestmark = pytest.mark.slow

DRIVER = "https://repo1.maven.org/maven2/org/postgresql/postgresql/42.7.4/postgresql-42.7.4.jar"
DRIVER_SHA256 = "188976721ead8e8627eb6d8389d500dccc0c9bebd885268a3047180274a6031e"
KEPT = Path("/var/tmp/sandboxer-e2b/postgresql.jar")
QUERY = """
import java.sql.*;
class Query {
    public static void main(String[] words) throws Exception {
        var url = "jdbc:postgresql://" + words[0] + "/postgres?user=postgres";
        try (var line = DriverManager.getConnection(url);
                var found = line.createStatement().executeQuery("SELECT 6 * 7")) {
            found.next();
            System.out.println(found.getInt(1));
        } catch (SQLException error) {
            System.out.println("refused " + error.getSQLState());
        }
    }
}
"""
DIAL = """
package main
import ("fmt"; "io"; "net"; "os")
func main() {
    line, err := net.Dial("tcp", os.Args[1])
    if err != nil { fmt.Println(err); return }
    said, err := io.ReadAll(line)
    fmt.Println(string(said), err)
}
"""


@pytest.fixture(scope="module")
def driver() -> bytes:
    if not KEPT.exists():
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(DRIVER, timeout=60) as answer:
            KEPT.write_bytes(answer.read())
    assert hashlib.sha256(KEPT.read_bytes()).hexdigest() == DRIVER_SHA256
    return KEPT.read_bytes()


@pytest.fixture
def database(world: None) -> Iterator[str]:
    """The port of a PostgreSQL that anybody may ask, far away."""
    if why := why_no_postgres():
        pytest.skip(why)
    everybody = Path("/tmp/sbx-pg-everybody.conf")
    everybody.write_text("local all all trust\nhost all all all trust\n")
    settings = {**FAST, "listen_addresses": ADDRESS, "hba_file": str(everybody)}
    with ExitStack() as stack:
        stack.callback(everybody.unlink)
        with far_away():
            url = stack.enter_context(running_postgres(settings))
        yield url.rpartition("/")[0].rpartition(":")[2]


async def put(served: Served, path: str, name: str, content: bytes) -> None:
    answer = await served.client.put(f"{path}/files/content?path={name}&mode=0755", content)
    assert answer.status_code < 300, answer.text


async def bare(served: Served, path: str, *argv: str) -> str:
    """Runs it without a variable but PATH."""
    return (await run(served, path, "env", "-i", "PATH=/usr/bin:/bin", "HOME=/root", *argv)).strip()


async def test_a_driver_of_jdbc_reaches_the_database_that_a_rule_names_and_no_other(
    database: str,
    served: Served,
    driver: bytes,
) -> None:
    if not (IMAGES / "languages").exists():
        pytest.skip("the image of all languages is not built (make image-languages)")
    resources = {"memory_mb": 768, "disk_mb": 128}
    path = await served.sandbox(
        network=f"allow:example.com:{database}", image="languages", resources=resources
    )
    await put(served, path, "/tmp/driver.jar", driver)
    await put(served, path, "/tmp/Query.java", QUERY.encode())
    ask = ("java", "-cp", "/tmp/driver.jar", "/tmp/Query.java")
    assert await bare(served, path, *ask, f"example.com:{database}") == "42"
    # By its address no rule allows it: what the driver says of a connection that is cut.
    assert (await bare(served, path, *ask, f"{ADDRESS}:{database}")).startswith("refused 08001")


async def test_a_static_program_of_go_finds_a_host_by_its_name(served: Served, tmp_path: Path) -> None:
    if (go := shutil.which("go")) is None:
        pytest.skip("Go is not installed")
    (tmp_path / "dial.go").write_text(DIAL)
    folders = {"GOCACHE": str(tmp_path / "cache"), "GOPATH": str(tmp_path / "go")}
    build = [go, "build", "-o", str(tmp_path / "dial"), str(tmp_path / "dial.go")]
    environment = {**os.environ, **folders, "CGO_ENABLED": "0"}
    await asyncio.to_thread(subprocess.run, build, check=True, env=environment)
    path = await served.sandbox(network="allow:example.com:9000")
    await put(served, path, "/tmp/dial", (tmp_path / "dial").read_bytes())

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome")
        writer.close()

    async with await asyncio.start_server(greet, sock=listening(ADDRESS, 9000)):
        assert await bare(served, path, "/tmp/dial", "example.com:9000") == "welcome <nil>"
        assert "connection reset" in await bare(served, path, "/tmp/dial", "example.com:9001")
