"""The demo as a user runs it: one process from the shell, nothing else."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from central.kube.transport.http_client import connect
from protos.common import own_program
from tests.fakes.processes import wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[3] / "daemonset/examples"
DEMO = [*own_program.command("central"), "demo"]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short: sockets will be in it."""
    with tempfile.TemporaryDirectory(prefix="ls-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(directory), "COLUMNS": "80"}


def test_kept_it_can_be_asked_and_ends_when_told(
    environment: dict[str, str], directory: Path
) -> None:
    log = directory / "demo.out"
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [*DEMO, "--keep", "--web"], env=environment, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 120
        while "Ctrl-C" not in log.read_text():
            assert demo.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        while "LOCKSTEP_TOKEN_FILE" not in log.read_text():
            time.sleep(0.01)
        exported = dict(re.findall(r"export (\w+)=(\S+)", log.read_text()))
        asked = subprocess.run(
            [*own_program.command("central"), "explain", "default/giant"],
            env={**environment, **exported},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert asked.returncode == 0, asked.stderr
        assert "needs 4 pods x 8 GPUs" in asked.stdout
        the_console_opens(log.read_text())
        first_job(environment, exported)
        an_example_ends(Path(exported["KUBECONFIG"]))
    finally:
        demo.send_signal(signal.SIGTERM)
        code = demo.wait(15)
    assert code == 0, log.read_text()
    assert not list(directory.glob("lockstep-*"))


def the_console_opens(shown: str) -> None:
    """The page on the first line leads to the console, with a token; nobody else may read it."""
    (address,) = re.findall(r"^file://(\S+)$", shown, re.MULTILINE)
    assert len(address) < 72
    (url,) = re.findall(r'url=(http://\S+)"', Path(address).read_text())
    assert url in shown.replace("\n", "")
    assert stat.S_IMODE(Path(address).stat().st_mode) == 0o600
    where, _, token = url.partition("#token=")
    with urllib.request.urlopen(where, timeout=30) as reply:
        assert b"<title>Lockstep</title>" in reply.read()
    asking = urllib.request.Request(
        f"{where}api/overview", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(asking, timeout=30) as reply:
        assert json.loads(reply.read())


def first_job(environment: dict[str, str], exported: dict[str, str]) -> None:
    """It starts at once beside a gang that waits, and ends by itself."""
    ran = subprocess.run(
        [*own_program.command("central"), "job", "run", "hello", "-r", "2", "-g", "1", "--wait"],
        env={**environment, **exported},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def an_example_ends(kubeconfig: Path) -> None:
    """A batch Job, whose pods a controller of the demo creates."""
    client = connect(str(kubeconfig))
    jobs = "/apis/batch/v1/namespaces/examples/jobs"
    example = yaml.safe_load((EXAMPLES / "gang-by-label.yaml").read_text())
    assert client.request("POST", jobs, json.dumps(example).encode()).ok
    deadline = time.monotonic() + 120
    while not client.get(f"{jobs}/sweep").get("status", {}).get("conditions"):
        assert time.monotonic() < deadline, client.get(jobs)
        time.sleep(0.1)
    client.close()


def test_interrupted_while_it_starts_it_leaves_nothing(
    environment: dict[str, str], directory: Path
) -> None:
    demo = subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    with demo.stdout as shown:
        while "hollow nodes" not in (line := shown.readline()):
            assert line, "it ended by itself"
        demo.send_signal(signal.SIGTERM)
        rest = shown.read()
    assert demo.wait(15) == 130
    assert "Stopped" in rest
    assert not list(directory.glob("lockstep-*"))


def test_a_taken_port_is_one_sentence(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for given in (str(port), "70000"):
            done = subprocess.run(
                [*DEMO, "--port", given],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 2
            assert done.stderr.count("\n") == 1
            assert given in done.stderr


def test_killed_it_leaves_no_process(environment: dict[str, str]) -> None:
    with subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        while "registered and reported" not in (line := demo.stdout.readline()):
            assert line, "it ended by itself"
        started = psutil.Process(demo.pid).children(recursive=True)
        programs = [" ".join(each.cmdline()) for each in started]
        assert sum("central central" in each for each in programs) == 1
        assert sum("agent run" in each for each in programs) == 8
        demo.kill()
    wait_gone([each.pid for each in started])
