"""A control daemon of MPS, and what gpu-setup concludes from its answers."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
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
        Tool(tool.path, tool.env, answer_s=30.0),
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
    server._tool = replace(server._tool, answer_s=1.0)
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


def script(folder: Path, text: str) -> Tool:
    """A program in the shell's language."""
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Tool(path, (("GIVEN", "1"),))


def server_of(tool: Tool, folder: Path) -> MpsServer:
    return MpsServer(tool, "GPU-0", folder / "p", folder / "log", lambda: None)


def test_a_daemon_hangs_once_it_has_missed_several_commands_in_a_row(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    tool = script(tmp_path, f"[ -e {silent} ] && exec sleep 5; exit 0")
    server, hasty = server_of(tool, tmp_path), replace(tool, answer_s=0.1)

    def misses(count: int) -> None:
        server._tool = hasty
        for _ in range(count):
            with pytest.raises(ToolTimeout, match=r"tool has not answered for 0\.1 s"):
                server.serves()

    silent.touch()
    misses(MISSED - 1)
    silent.unlink()
    server._tool = tool
    assert server.serves(), "an answer in between counts"
    silent.touch()
    misses(MISSED - 1)
    assert not server.serves()
    assert not server_of(Tool(tmp_path / "nothing"), tmp_path).serves()


def test_a_limit_is_set_again_only_for_another_amount_or_other_servers(tmp_path: Path) -> None:
    servers, log = tmp_path / "servers", tmp_path / "log.txt"
    servers.write_text("11 12")
    server = server_of(
        script(tmp_path, f"read c; echo $c >> {log}; case $c in get_*) cat {servers};; esac"),
        tmp_path,
    )

    def sent() -> list[str]:
        lines = log.read_text().splitlines()
        log.write_text("")
        return [line for line in lines if line != "get_server_list"]

    def commands(mib: int, *pids: int) -> list[str]:
        each = [f"set_device_pinned_mem_limit {pid} 0 {mib}M" for pid in pids]
        return [f"set_default_device_pinned_mem_limit 0 {mib}M", *each]

    server.limit(100)
    assert sent() == commands(100, 11, 12)
    server.limit(100)
    assert sent() == []
    server.limit(200)
    assert sent() == commands(200, 11, 12)
    servers.write_text("12 13")
    server.limit(200)
    assert sent() == commands(200, 12, 13)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo out; echo ' an\n  error ' >&2; exit 3", "an error"),
        ("echo out; exit 1", "out"),
        ("exit 1", "no message"),
        ("printf '%0300d' 0 >&2; exit 1", "0" * 200),
    ],
)
def test_a_program_that_fails_says_why_in_two_hundred_characters(
    tmp_path: Path, text: str, why: str
) -> None:
    tool = script(tmp_path, text)
    for arguments, stdin, what in ((("-a", "b"), "", "-a b"), (("-a",), "do it\n", "do it")):
        with pytest.raises(ToolError) as failure:
            tool.run(*arguments, stdin=stdin)
        assert str(failure.value) == f"tool refused `{what}`: {why}"


def test_a_program_gets_its_arguments_its_input_and_its_environment(tmp_path: Path) -> None:
    tool = script(tmp_path, 'read line; echo "$1 $2 $line $GIVEN $MORE"')
    assert tool.run("a", "b", stdin="c\n", MORE="2") == "a b c 1 2\n"
    with pytest.raises(ToolError, match=r"^cannot run .*/nothing: No such file or directory$"):
        Tool(tmp_path / "nothing").run()


def test_what_is_on_the_path_goes_before_the_drivers_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "usr/bin")
    install(tmp_path / "usr/local/nvidia/bin")
    for folder in ("usr/lib64", "usr/local/nvidia/lib64", "home"):
        (tmp_path / folder).mkdir(parents=True)
    found = find(CONTROL, tmp_path)
    assert found.path == tmp_path / "usr/bin" / CONTROL, "the first of the drivers' places"
    environment = found.environment(MORE="1")
    assert environment["PATH"].startswith(f"{found.path.parent}:")
    libraries = (tmp_path / "usr/lib64", tmp_path / "usr/local/nvidia/lib64")
    assert environment["LD_LIBRARY_PATH"] == ":".join(map(str, libraries))
    assert environment["MORE"] == "1"
    monkeypatch.setenv("PATH", f"{tmp_path / 'usr/local/nvidia/bin'}:{os.environ['PATH']}")
    assert find(CONTROL, tmp_path) == Tool(tmp_path / "usr/local/nvidia/bin" / CONTROL)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"is not on the path: run this with NVIDIA's runtime"):
        find(CONTROL, None)
