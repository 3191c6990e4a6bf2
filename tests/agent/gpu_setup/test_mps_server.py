"""A control daemon of MPS, and what gpu-setup concludes from its answers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.gpu_setup.mps_server import MISSED, MpsServer
from agent.gpu_setup.nvidia_tools import CONTROL, Tool, ToolError, ToolTimeout, find
from tests.fakes.eventually import eventually
from tests.fakes.mps.install import install


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MpsServer]:
    install(tmp_path / "usr/bin")
    tool = find(CONTROL, tmp_path)
    made = MpsServer(
        Tool(tool.path, tool.env, answer_s=1.0),
        "GPU-0",
        tmp_path / "p",
        tmp_path / "log",
        lambda: None,
    )
    yield made
    made.stop()


def test_limits_are_those_of_servers_to_come_and_of_those_there_are(server: MpsServer) -> None:
    server.start(multi_user=True)
    assert server.serves()
    server._command("start_server -uid 0")
    running = server._command("get_server_list").strip()
    server.limit(4096)
    assert server._command("get_default_device_pinned_mem_limit 0") == "4096M\n"
    assert server._command(f"get_device_pinned_mem_limit {running} 0") == "4096M\n"
    server._command("start_server -uid 1000")  # with the default limit
    server.limit(4096)
    server.stop()
    assert not server.serves()


@pytest.mark.slow
def test_a_daemon_that_is_slow_is_not_ended_at_once(server: MpsServer, tmp_path: Path) -> None:
    server.start(multi_user=True)
    pid = int((tmp_path / "p" / "nvidia-cuda-mps-control.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(MISSED - 1):
            with pytest.raises(ToolTimeout, match="has not answered for 1 s"):
                server.serves()
        assert not server.serves()
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: answers(server))


def answers(server: MpsServer) -> bool:
    """A daemon that runs but is slow to answer."""
    try:
        return server.serves()
    except ToolTimeout:
        return False


def test_a_daemon_that_cant_start_says_why(server: MpsServer, tmp_path: Path) -> None:
    (tmp_path / "refuse").write_text("this GPU is too old")
    with pytest.raises(ToolError, match=r"exited at once .*this GPU is too old"):
        server.start(multi_user=False)


def test_nvidias_programs_are_looked_for_where_drivers_are(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=f"{CONTROL} is not on the path or below .*: run this with"):
        find(CONTROL, tmp_path)
    install(tmp_path / "run/nvidia/driver/usr/bin")
    assert find(CONTROL, tmp_path).path == tmp_path / "run/nvidia/driver/usr/bin" / CONTROL


def test_what_it_refuses_is_told(server: MpsServer) -> None:
    server.start(multi_user=True)
    with pytest.raises(ToolError, match="refused `nonsense`: Unrecognized command"):
        server._command("nonsense")
