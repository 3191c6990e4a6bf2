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
