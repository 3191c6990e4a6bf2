"""The agent's command line."""

from pathlib import Path

import pytest

from agent.flags import parser
from agent.machine.facts import Unusable
from agent.service import Agent
from agent.settings import settings
from tests.flags import silent


def test_every_flag_says_what_it_is_for() -> None:
    assert silent(parser()) == set()


def test_what_can_not_be_meant_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["run", "--node", "Bad_Name"])
    assert "'Bad_Name' is not a node name" in capsys.readouterr().err
    with pytest.raises(Unusable, match="--hold-most 30 is less than --hold 60"):
        settings(parser().parse_args(["run", "--hold", "60", "--hold-most", "30"]))
    made = settings(parser().parse_args(["run", "--cgroup-root", str(tmp_path / "nope")]))
    with pytest.raises(Unusable, match="nope: no such directory"):
        Agent(made).start()


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--hold", "0", "is not a number of seconds (0.05 to 86400)"),
        ("--metrics-listen", "here", "is not HOST:PORT"),
        ("--imex-channel", "2048", "is not a channel from 0 to 2047"),
        ("--rdma-shares", "0", "is not a whole number from 1 to 1000"),
        ("--rdma-hca-handles", "-1", "is neither a whole number nor max"),
        ("--rdma-devices", "vendor=", "vendor"),
        ("--rdma-rails", "none,mlx5_0", "none"),
        ("--share-gpus", "0: never", "never"),
    ],
)
def test_each_kind_of_value_is_checked(
    flag: str, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["run", f"{flag}={value}"])
    assert f" {flag}: " in (err := capsys.readouterr().err)
    assert says in err


@pytest.mark.parametrize(
    "text", ["/a", "/a:", ":/b", "a:/b", "/a:b", "/a:/b:/c", "/a/../b:/c", "/:/b", "/a b:/c"]
)
def test_a_driver_mount_is_two_absolute_paths(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["run", "--driver-mount", text])
    assert "is not two absolute paths" in capsys.readouterr().err


def test_a_driver_mount() -> None:
    made = settings(parser().parse_args(["run", "--driver-mount", "/home/x/nvidia:/usr/nvidia"]))
    assert made.driver_mount == (("/home/x/nvidia", "/usr/nvidia"),)
