"""What a process of lockstep-launch finds in its environment, and what the command refuses."""

import json
import subprocess
import sys

import pytest

from agent.train import launch
from agent.train.environment import PodPlace
from agent.train.generation import parse
from agent.train.launch_variables import variables
from tests.architecture.sources import ROOT

# Members 5 and 2 on one node, member 9 alone; in topology order.
ANSWER = {
    "generation": 4,
    "state": "live",
    "members": [
        {"member": 5, "rank": 0, "address": "w5", "node": "a", "local": 0, "incarnation": 1},
        {"member": 2, "rank": 1, "address": "w2", "node": "a", "local": 1, "incarnation": 1},
        {"member": 9, "rank": 2, "address": "w9", "node": "b", "local": 0, "incarnation": 3},
    ],
    "leader": {"address": "w5", "port": 29000},
}
MEMBER_2 = PodPlace(2, 1, "p", "u", "w2", 2, "", "a")


def test_ranks_follow_the_members_ranks() -> None:
    found = variables(parse(ANSWER), MEMBER_2, 2, 1)
    assert {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "w5",
        "MASTER_PORT": "29000",
        "LOCKSTEP_GENERATION": "4",
        "LOCKSTEP_MEMBER": "2",
    }.items() <= found.items()


def test_an_older_process_of_the_member_is_not_in_the_generation() -> None:
    with pytest.raises(ValueError, match="member 9 is not in generation 4"):
        variables(parse(ANSWER), PodPlace(9, 2, "p", "u", "w9", 1, "", "b"), 1, 0)


def test_tensorflow() -> None:
    config = json.loads(variables(parse(ANSWER), MEMBER_2, 1, 0, "tensorflow")["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == ["w5:29000", "w2:29001", "w9:29000"]


def test_jax() -> None:
    found = variables(parse(ANSWER), MEMBER_2, 1, 0, "jax")
    assert found["JAX_COORDINATOR_ADDRESS"] == "w5:29000"
    assert (found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == ("3", "1")


def test_paddle_has_an_endpoint_of_its_own_for_each_process() -> None:
    found = variables(parse(ANSWER), MEMBER_2, 2, 1, "paddle")
    endpoints = found["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert len(set(endpoints)) == len(endpoints) == int(found["PADDLE_TRAINERS_NUM"]) == 6
    assert found["PADDLE_CURRENT_ENDPOINT"] == endpoints[3] == "w2:29003"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--nproc=0", "--", "true"], '"0" is not a number from 1 to 1024'),
        (["--stop-wait=nan", "--", "true"], '"nan" is not a number of seconds'),
        (["--for=mpi", "--", "true"], "invalid choice"),
        (["--nproc=1025", "--", "true"], '"1025" is not a number from 1 to 1024'),
        (["--nproc=two", "--", "true"], '"two" is not a number from 1 to 1024'),
        (["--stop-wait=-1", "--", "true"], '"-1" is not a number of seconds'),
        (["--stop-wait=86401", "--", "true"], '"86401" is not a number of seconds'),
        (["--stop-wiat=3", "--", "true"], "did you mean --stop-wait? (see"),
        (["--xyz", "--", "true"], "unrecognized arguments: --xyz (see lockstep-launch --help)"),
    ],
)
def test_bad_flags(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        launch.main(arguments)
    assert ended.value.code == launch.BAD_USAGE
    assert says in capsys.readouterr().err


def test_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--"]) == launch.BAD_USAGE
    assert "a command is needed" in capsys.readouterr().err


def test_without_a_coordinator_the_command_runs_once() -> None:
    command = [sys.executable, "-m", "agent.train.launch", "--", sys.executable, "-c", "exit(5)"]
    run = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, text=True)
    assert run.returncode == 5, run.stderr
    assert "LOCKSTEP_COORDINATOR is not set" in run.stderr


@pytest.mark.parametrize(
    "answer", [{}, {"generation": 1}, {"generation": 1, "state": "live", "members": [1]}]
)
def test_an_answer_that_is_no_generation(answer: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a generation"):
        parse(answer)
