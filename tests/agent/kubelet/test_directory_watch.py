import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.kubelet.directory_watch import DirectoryWatch
from tests.fakes.eventually import eventually


@contextmanager
def watched(path: Path) -> Iterator[DirectoryWatch]:
    folder = DirectoryWatch(path, lambda: None)
    stop = threading.Event()
    thread = threading.Thread(target=folder.run, args=(stop,))
    thread.start()
    try:
        yield folder
    finally:
        stop.set()
        folder.stop()
        thread.join(5)
        assert not thread.is_alive()


def test_what_comes_and_goes_is_told_at_once(tmp_path: Path) -> None:
    with watched(tmp_path) as folder:
        eventually(lambda: folder.watching)
        for act in (
            (tmp_path / "a").touch,
            (tmp_path / "a").unlink,
            lambda: os.mkfifo(tmp_path / "b"),
            lambda: (tmp_path / "b").rename(tmp_path / "c"),
        ):
            before = folder.changes
            act()
            eventually(lambda before=before: folder.changes > before, 15)  # type: ignore[misc]  # bound


def test_a_directory_that_comes_late_and_one_that_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "plugins"
    with watched(place) as folder:
        eventually(lambda: "plugins (No such file or directory); polling" in caplog.text)
        place.mkdir()
        eventually(lambda: folder.watching)
        place.rename(tmp_path / "old")
        place.mkdir()
        eventually(lambda: not folder.watching)
        eventually(lambda: folder.watching)
        before = folder.changes
        (place / "kubelet.sock").touch()
        eventually(lambda: folder.changes > before, 15)
    assert not folder.watching


def test_it_ends_before_it_has_begun(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    folder = DirectoryWatch(tmp_path, lambda: None)
    folder.stop()
    folder.run(stop)
