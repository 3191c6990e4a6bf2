"""Sixty questions of users of clusters, each answered by one command on a local cluster whose scheduler and agents are
processes."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from central.cli.main import main
from central.kube.transport.http_client import MERGE
from central.standalone import demo
from tests.central.local_clusters import started
from tests.central.server.test_scheduler_process import reported
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
QUESTIONS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in Path(__file__).with_name("sixty_questions.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| who")
]
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
STEPS = (
    "queue create research -w 1 --deserved nvidia.com/gpu=16 --capability nvidia.com/gpu=32",
    "queue create prod -w 3 --deserved nvidia.com/gpu=32",
    *(
        f"job run s{n} -q research -g 8 --gpu-model H100 --runs-for 1h -- sleep 3600"
        for n in range(3)
    ),
    "job run s3 -q research -g 8 --gpu-model H100 --priority low --runs-for 1h -- sleep 3600",
    "job run big -q prod -r 4 -g 8 --gpu-model A100 --runs-for 30m -- sleep 3600",
)
LATER = (
    "job run urgent -q research -g 8 --priority urgent -- sleep 3600",
    "job run next -q prod -r 2 -g 8 --runs-for 10m -- sleep 60",
    "job run giant -r 100 -g 8 -- sleep 60",
    "job run cpu -R cpu=200 -- sleep 60",
    "job run typo -q reserch -g 1 -- sleep 60",
    "job run small --runs-for 1s -- true",
)


class Shell:
    def __init__(self, box: FaultyCluster) -> None:
        self.box = box
        self.files = {"job": box.directory / "mine.yaml", "bundle": box.directory / "bundle.tar"}
        named = {"KUBECONFIG": box.kubeconfig, "LOCKSTEP_SERVER": box.server}
        named |= {"LOCKSTEP_CA": box.ca_file, "LOCKSTEP_TOKEN_FILE": box.token_file}
        self.environment = {key: str(value) for key, value in named.items()}

    def typed(self, command: str) -> str:
        """Runs `lockstep COMMAND`, whose output may be that of a refusal, and returns its output."""
        words = shlex.split(command.format(**self.files))
        output = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            contextlib.suppress(SystemExit),
        ):
            patch.delenv("COLUMNS", raising=False)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            main(words)
        assert "Traceback" not in output.getvalue(), output.getvalue()
        return output.getvalue()

    def wait(self, command: str, shown: str) -> None:
        self.box.wait(f"{command}: {shown}", lambda: re.search(shown, self.typed(command)))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    history = tmp_path_factory.mktemp("kept") / "history"
    with started(demo.nodes(), [f"--history={history}"]) as box:
        box.wait("the agents", lambda: reported(box))
        for name, value in (("low", -10), ("urgent", 1000)):
            box.create(PRIORITIES, {"metadata": {"name": name}, "value": value})
        shell = Shell(box)
        for step in STEPS:
            shell.typed(step)
        shell.wait("topology --by model", r"A100.* 32 +0 +0 +0\n.*H100.* 32 +0 +0 +0")
        for step in LATER:
            shell.typed(step)
        shell.wait("job list", r"small .*Completed(.*\n)+.*urgent +research +Running")
        shell.wait("explain s3", "capability of 32 GPUs")
        shell.files["job"].write_text(shell.typed("job run mine -r 2 -g 4 --dry-run"))
        cordon = orjson.dumps({"spec": {"unschedulable": True}})
        assert box.client.request("PATCH", "/api/v1/nodes/h100-4", cordon, MERGE).ok
        shell.wait("topology", "h100-4 .*cordoned")
        yield shell


def test_there_are_sixty() -> None:
    asked = [(who, question) for who, question, _, _ in QUESTIONS]
    assert len(set(asked)) == len(asked) >= 60


@pytest.mark.parametrize(("question", "command", "answer"), [row[1:] for row in QUESTIONS])
def test_is_answered(shell: Shell, question: str, command: str, answer: str) -> None:
    command, answer = command.strip("`"), answer.strip("`").replace("\\|", "|")
    shown = shell.typed(command)
    assert re.search(answer, shown, re.MULTILINE), f"{question}\n$ lockstep {command}\n{shown}"
