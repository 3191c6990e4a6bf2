"""The command `lockstep-agent gpu-setup` in this process."""

import argparse
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.gpu_setup import command
from agent.machine.facts import Unusable
from agent.sharing.setup_requests import SetupRequests
from tests.fakes.eventually import eventually


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, numbers = logging.getLogger(), (signal.SIGTERM, signal.SIGINT)
    handlers, level = root.handlers[:], root.level
    former = {number: signal.getsignal(number) for number in numbers}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for number, handler in former.items():
        signal.signal(number, handler)


def given(folder: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(["--sharing-dir", str(folder), *more])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_its_folder_until_a_signal(tmp_path: Path, number: int) -> None:
    requests = SetupRequests(tmp_path / "s")
    served: list[str] = []

    def end() -> None:
        eventually(lambda: not requests.unavailable() and "starting" not in requests.capabilities().mps)  # fmt: skip
        served.append(requests.capabilities().mps)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    assert command.run(given(tmp_path / "s", "--driver-root", str(tmp_path / "d"))) == 0
    thread.join()
    assert f"is not on the path or below {tmp_path / 'd'}" in served[0]
    assert requests.unavailable()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unusable, match=f"^{tmp_path}/file/s/?.*: Not a directory$"):
        command.run(given(tmp_path / "file/s"))


def test_the_folder_is_required_and_clients_are_of_many_users(tmp_path: Path) -> None:
    assert not given(tmp_path).one_user
    assert given(tmp_path, "--one-user").one_user
    assert given(tmp_path).driver_root is None
    with pytest.raises(SystemExit):
        given(tmp_path, "--nothing")
