"""The process that unpacks archives ends as quietly as it began."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.artifacts.images.oci.unpacker import Unpacker
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.kernel.errors import SandboxerError
from tests.support.archives import docker_archive, file, packed


@pytest.mark.parametrize("is_whole", [True, False], ids=["taken", "refused"])
def test_nothing_is_said_on_the_servers_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_whole: bool
) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(docker_archive(packed(file("some"))) if is_whole else b"no archive" * 100)
    with archive.open("rb") as opened:
        unpacker = Unpacker(opened, Bounds())
        if is_whole:
            assert len(unpacker.weigh().layers) == 1
        else:
            with pytest.raises(SandboxerError):
                unpacker.weigh()
    assert capfd.readouterr().err == ""
