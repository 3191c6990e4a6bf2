"""Commands that ask the scheduler, on a user's machine that has a kubeconfig and nothing else: against a local cluster,
with kubectl's port forwarding replaced by the scheduler's own port. The end-to-end tests use kubectl itself."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
import psutil
import pytest

from central.cli import exit_codes, scheduler_access
from central.kube.transport.http_client import connect
from central.server.grpc import query_client
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from protos.names import NAMESPACE, RACK
from tests.central import local_clusters
from tests.fakes.faulty_api import Fault, FaultyApi
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.processes import wait_gone

Typed = Callable[..., subprocess.CompletedProcess[str]]
CA = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
HIDDEN = ("LOCKSTEP_SERVER", "LOCKSTEP_CA", "LOCKSTEP_TOKEN_FILE", "LOCKSTEP_SERVER_NAME")


@pytest.fixture(scope="module")
def box() -> Iterator[FaultyCluster]:
    node = HollowNode("n0", {RACK: "r"}, CAPTURES / "dgx-a100-8.json")
    with local_clusters.started([node]) as made:
        create_what_is_installed(made)
        yield made


def create_what_is_installed(box: FaultyCluster) -> None:
    """The objects of the shipped manifests that a command reads."""
    certificate = (box.tls / "ca.crt").read_text()
    box.create(CA, {"metadata": {"name": "lockstep-ca"}, "data": {"ca.crt": certificate}})
    box.create(ACCOUNTS, {"metadata": {"name": "lockstep-central"}})


@pytest.fixture
def kubectl(tmp_path: Path) -> Callable[[str], None]:
    """Puts a program on the PATH that appends its arguments to a file and goes on as told."""

    return partial(write_kubectl, tmp_path)


def write_kubectl(folder: Path, script: str) -> None:
    program = folder / "kubectl"
    record = f"""\
        #!{sys.executable}
        import os, signal, sys, time
        open({str(folder / "argv")!r}, "a").write(f"{{os.getpid()}} {{' '.join(sys.argv[1:])}}\\n")
        """
    program.write_text(textwrap.dedent(record) + script + "\n")
    program.chmod(0o755)


@pytest.fixture
def lockstep(box: FaultyCluster, tmp_path: Path) -> Typed:
    def typed(*argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        env = {**kept, "PATH": str(tmp_path), "KUBECONFIG": str(box.kubeconfig), **more}
        command = [sys.executable, "-m", "central", *argv]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    return typed


def forwards(box: FaultyCluster) -> str:
    port = box.server.rpartition(":")[2]
    said = f"Forwarding from 127.0.0.1:{port} -> 9443"
    return f"print({said!r}, flush=True)\ntime.sleep(600)"


# Forwards connections to another port, and says a lot before each.
TALKATIVE = """
import socket, threading
def pump(source, to):
    while part := source.recv(65536):
        to.sendall(part)
    to.shutdown(socket.SHUT_WR)
with socket.create_server(("127.0.0.1", 0)) as server:
    print(f"Forwarding from 127.0.0.1:{server.getsockname()[1]} -> 9443", flush=True)
    while True:
        here = server.accept()[0]
        print("Handling connection for 9443 " * 10_000, flush=True)
        there = socket.create_connection(("127.0.0.1", PORT))
        for pair in ((here, there), (there, here)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
"""


def calls(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "argv").read_text().splitlines()
    return [(int(line.split()[0]), line.partition(" ")[2]) for line in lines]


def test_the_scheduler_is_found_by_the_kubeconfig_alone(
    box: FaultyCluster, lockstep: Typed, kubectl: Callable[[str], None], tmp_path: Path
) -> None:
    kubectl(forwards(box))
    done = lockstep("topology")
    assert (done.returncode, done.stderr) == (0, "")
    assert "n0" in done.stdout
    ((pid, argv),) = calls(tmp_path)
    assert argv == (
        f"--namespace={NAMESPACE} port-forward --address=127.0.0.1 service/lockstep-central :9443"
    )
    assert not psutil.pid_exists(pid)


def test_kubeconfig_context_and_namespace_reach_kubectl(
    box: FaultyCluster, lockstep: Typed, kubectl: Callable[[str], None], tmp_path: Path
) -> None:
    kubectl(forwards(box))
    done = lockstep("explain", "nothing", f"--kubeconfig={box.kubeconfig}", KUBECONFIG="/no/such")
    assert done.returncode == exit_codes.NOT_FOUND
    assert "no gang or pod named default/nothing" in done.stderr
    ((_, argv),) = calls(tmp_path)
    assert argv.startswith(f"--namespace={NAMESPACE} --kubeconfig={box.kubeconfig} port-forward ")
    missing = lockstep("topology", "--context=other")
    assert missing.returncode == exit_codes.USAGE
    assert "other" in missing.stderr
    elsewhere = lockstep("topology", "--scheduler-namespace=other")
    assert elsewhere.returncode == exit_codes.NOT_FOUND
    assert elsewhere.stderr == (
        "lockstep: the ConfigMap other/lockstep-ca does not exist: no scheduler is installed in the "
        "namespace other; see --scheduler-namespace\n"
    )
    assert len(calls(tmp_path)) == 1


def test_a_named_scheduler_is_asked_at_its_address(
    box: FaultyCluster, lockstep: Typed, kubectl: Callable[[str], None], tmp_path: Path
) -> None:
    kubectl("sys.exit(1)")
    named = lockstep("topology", f"--server={box.server}")
    assert "/run/lockstep/ca.crt: No such file or directory" in named.stderr
    named = lockstep("topology", "--ca-file=/no/such")
    assert "/no/such: No such file or directory" in named.stderr
    named = lockstep("topology", LOCKSTEP_TOKEN_FILE="/no/token")
    assert "No such file or directory" in named.stderr
    assert not (tmp_path / "argv").exists()


def talkative(box: FaultyCluster) -> str:
    return TALKATIVE.replace("PORT", box.server.rpartition(":")[2])


def test_what_kubectl_goes_on_to_say_is_read(
    box: FaultyCluster, lockstep: Typed, kubectl: Callable[[str], None]
) -> None:
    """Else it would stand still after some thousand connections of `lockstep top`."""
    kubectl(talkative(box))
    done = lockstep("topology")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_command_that_is_ended_ends_kubectl(
    box: FaultyCluster,
    kubectl: Callable[[str], None],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    """It waits for an answer of something that takes the connection, and is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        kubectl(f"print('Forwarding from 127.0.0.1:{port} -> 9443', flush=True)\ntime.sleep(600)")
        env = {**os.environ, "PATH": str(tmp_path), "KUBECONFIG": str(box.kubeconfig)}
        command = [sys.executable, "-m", "central", "topology"]
        with subprocess.Popen(command, env=env) as process:
            silent.accept()[0].close()
            process.send_signal(number)
            assert process.wait(30) == code
    ((pid, _),) = calls(tmp_path)
    wait_gone([pid])


def test_kubectl_that_is_missing_or_fails_is_named(
    lockstep: Typed, kubectl: Callable[[str], None], tmp_path: Path
) -> None:
    missing = lockstep("topology")
    assert missing.returncode == exit_codes.USAGE
    assert missing.stderr == (
        "lockstep: kubectl, which forwards the scheduler's port, is not on the PATH; install it, or name "
        "the scheduler with --server, --ca-file and --token-file\n"
    )
    kubectl('sys.exit("error: pods \\"lockstep-central-0\\" is\\n forbidden")')
    failed = lockstep("topology")
    assert failed.returncode == exit_codes.UNREACHABLE
    assert failed.stderr == (
        "lockstep: kubectl port-forward service/lockstep-central: "
        'error: pods "lockstep-central-0" is forbidden\n'
    )
    kubectl('sys.stdout.write("x" * 1_000_000); sys.stdout.flush(); time.sleep(600)')
    endless = lockstep("topology")
    assert endless.returncode == exit_codes.UNREACHABLE
    assert len(endless.stderr) < 700
    assert not any(psutil.pid_exists(pid) for pid, _ in calls(tmp_path))


def test_a_kubectl_that_ignores_sigterm_is_killed(
    box: FaultyCluster, lockstep: Typed, kubectl: Callable[[str], None], tmp_path: Path
) -> None:
    kubectl(f"signal.signal({int(signal.SIGTERM)}, signal.SIG_IGN)\n{forwards(box)}")
    assert lockstep("topology").returncode == 0
    ((pid, _),) = calls(tmp_path)
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("kind", "server"),
    [
        (query_client.NOT_FOUND, query_client.SERVER),
        (query_client.USAGE, query_client.SERVER),
        (query_client.UNREACHABLE, "scheduler:9443"),
    ],
)
def test_what_no_new_connection_mends_is_the_same_error(kind: str, server: str) -> None:
    parser = argparse.ArgumentParser()
    scheduler_access.add_flags(parser)
    args = parser.parse_args(["--server", server])
    error = query_client.CannotAsk("so it is", kind)
    with pytest.raises(query_client.CannotAsk) as raised:
        scheduler_access.renewed(args, error)
    assert raised.value is error


def test_without_a_kubeconfig_both_ways_are_named(
    lockstep: Typed, kubectl: Callable[[str], None]
) -> None:
    kubectl("sys.exit(1)")
    done = lockstep("explain", "train", KUBECONFIG="/no/such")
    assert done.returncode == exit_codes.USAGE
    assert done.stderr == (
        "lockstep: kubeconfig /no/such: no such file; name one with --kubeconfig or KUBECONFIG, or run in a "
        "pod; or name the scheduler with --server, --ca-file and --token-file\n"
    )


@pytest.mark.parametrize(
    "part", ["configmaps/lockstep-ca", "serviceaccounts/lockstep-central/token"]
)
def test_a_user_without_the_rights_learns_what_they_may_do(
    lockstep: Typed, kubectl: Callable[[str], None], tmp_path: Path, part: str
) -> None:
    def refusals(method: str, path: str) -> Fault | None:
        return (
            Fault(403, b'{"reason": "Forbidden", "message": "jane may not"}')
            if part in path
            else None
        )

    kubectl("sys.exit(1)")
    with FaultyApi(faults=refusals) as api:
        api.write_kubeconfig(tmp_path / "config")
        with closing(connect(str(tmp_path / "config"))) as client:
            for path, raw in (
                ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
                (CA, {"metadata": {"name": "lockstep-ca"}, "data": {"ca.crt": "x"}}),
            ):
                assert client.request("POST", path, orjson.dumps(raw)).ok
        done = lockstep("explain", "train", KUBECONFIG=str(tmp_path / "config"))
    assert done.returncode == exit_codes.REFUSED
    assert done.stderr.startswith("lockstep: you may not read ")
    assert "(jane may not); `lockstep job view` and `lockstep group view` show why" in done.stderr
    assert not (tmp_path / "argv").exists()
