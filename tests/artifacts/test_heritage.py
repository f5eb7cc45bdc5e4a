"""What is known of kept disks, while several threads change it."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from sandboxer.backends.namespaces.kept.records import Heritage, HeritageFolder
from sandboxer.kernel.values import new_id


def test_a_disk_dropped_while_its_size_is_written_down_does_not_come_back(tmp_path: Path) -> None:
    """It would be listed for ever as a disk that nobody has a record of."""
    folder, disk = HeritageFolder(tmp_path), new_id("snp")
    folder.write(Heritage(id=disk))
    # Whoever writes it waits in the middle, until somebody reads.
    os.mkfifo(tmp_path / f".{disk}")
    measuring = threading.Thread(target=folder.amend, args=(Heritage(id=disk, bytes=7),))
    dropping = threading.Thread(target=folder.remove, args=(disk,))
    measuring.start()
    while not is_writing(measuring):
        time.sleep(0.001)
    dropping.start()
    # Done by then, or waiting for the writer.
    dropping.join(0.5)
    with open(tmp_path / f".{disk}", "rb"):
        measuring.join(10)
    dropping.join(10)
    assert not measuring.is_alive()
    assert not dropping.is_alive()
    assert list(tmp_path.iterdir()) == []
    assert folder.kept() == []


def is_writing(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return "write_text" in names
