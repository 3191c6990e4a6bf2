"""How the commands get the scheduler's address from a kubeconfig, in this process: with an API server in memory, and a
program that stands for kubectl."""

import argparse
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from central.cli import scheduler_access
from central.kube.transport.http_client import Client, StatusError
from central.server.grpc import query_client
from central.server.grpc.query_client import CannotAsk, SchedulerAddress
from protos.names import NAMESPACE
from tests.fakes.processes import runs, wait_gone

Json = dict[str, Any]
CA = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
FORWARDS = "echo 'Forwarding from 127.0.0.1:54321 -> 9443'; exec /bin/sleep 600"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A program that notes its process and arguments, and goes on as told."""
    program = tmp_path / "kubectl"

    def write(then: str) -> None:
        program.write_text(f'#!/bin/sh\necho "$$ $*" >> {tmp_path / "argv"}\n{then}\n')
        program.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    write(FORWARDS)
    yield write
    scheduler_access._end_all()


@pytest.fixture
def installed(put: Callable[[str, Json], Json]) -> None:
    put("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    put(CA, {"metadata": {"name": "lockstep-ca"}, "data": {"ca.crt": "PEM"}})
    put(ACCOUNTS, {"metadata": {"name": "lockstep-central"}})


def calls(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "argv").read_text().splitlines()
    return [(int(line.split()[0]), line.partition(" ")[2]) for line in lines]


def given(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    scheduler_access.add_flags(parser)
    return parser.parse_args(argv)


def forwarded(*argv: str) -> SchedulerAddress:
    args = given(*argv)
    return scheduler_access._forwarded(args.kubeconfig, args.context, args.scheduler_namespace)


def refusal(*argv: str) -> tuple[str, str]:
    with pytest.raises(CannotAsk) as raised:
        forwarded(*argv)
    return raised.value.kind, str(raised.value)


@pytest.mark.usefixtures("installed", "kubectl")
def test_the_address_has_the_forwarded_port_and_what_the_api_server_gives(tmp_path: Path) -> None:
    found = forwarded()
    assert (found.server, found.server_name) == (
        "127.0.0.1:54321",
        f"lockstep-central.{NAMESPACE}.svc",
    )
    assert (found.certificate, found.ca_file, found.token_file) == (b"PEM", "", "")
    assert found.token
    assert found.token not in repr(found)
    config = os.environ["KUBECONFIG"]
    forwarded("--kubeconfig", config, "--context", "lockstep-standalone")
    (first, plain), (_, chosen) = calls(tmp_path)
    rest = "port-forward --address=127.0.0.1 service/lockstep-central :9443"
    assert plain == f"--namespace={NAMESPACE} {rest}"
    assert (
        chosen
        == f"--namespace={NAMESPACE} --kubeconfig={config} --context=lockstep-standalone {rest}"
    )
    assert runs(first)


@pytest.mark.usefixtures("installed", "kubectl")
def test_a_broken_connection_is_renewed_and_the_old_kubectl_ends(tmp_path: Path) -> None:
    forwarded()
    for kind in (query_client.UNREACHABLE, query_client.REFUSED):
        before, _ = calls(tmp_path)[-1]
        assert scheduler_access.renewed(given(), CannotAsk("", kind)).server == "127.0.0.1:54321"
        assert not runs(before)
    assert len(calls(tmp_path)) == 3
    with pytest.raises(CannotAsk, match="no such node"):
        scheduler_access.renewed(given(), CannotAsk("no such node", query_client.NOT_FOUND))
    assert len(calls(tmp_path)) == 3


@pytest.mark.usefixtures("kubectl")
def test_what_is_missing_is_named(tmp_path: Path, put: Callable[[str, Json], Json]) -> None:
    ca = f"the ConfigMap {NAMESPACE}/lockstep-ca"
    token = f"a token of the ServiceAccount {NAMESPACE}/lockstep-central"
    missing = (
        "does not exist: no scheduler is installed in the namespace lockstep-system; "
        "see --scheduler-namespace"
    )
    assert refusal() == (query_client.NOT_FOUND, f"{ca} {missing}")
    put("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    put(CA, {"metadata": {"name": "lockstep-ca"}, "data": {"other": ""}})
    kind, why = refusal()
    assert (kind, why) == (
        query_client.USAGE,
        f"{ca}: the API server's answer has no such field: 'ca.crt'",
    )
    put(
        CA.replace(NAMESPACE, "default"),
        {"metadata": {"name": "lockstep-ca"}, "data": {"ca.crt": "x"}},
    )
    kind, why = refusal("--scheduler-namespace", "default")
    assert kind == query_client.NOT_FOUND
    assert why.startswith(token.replace(NAMESPACE, "default"))
    kind, why = refusal("--context", "other")
    assert kind == query_client.USAGE
    assert why.endswith("; or name the scheduler with --server, --ca-file and --token-file")
    assert not (tmp_path / "argv").exists()


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (401, query_client.REFUSED, "you may not read "),
        (403, query_client.REFUSED, "you may not read "),
        (404, query_client.NOT_FOUND, "no scheduler is installed in the namespace ns"),
        (500, query_client.UNREACHABLE, "it: broken"),
    ],
)
def test_refusals_of_the_api_server(status: int, kind: str, says: str) -> None:
    found = scheduler_access._refused(StatusError(status, "", "broken"), "it", "ns")
    assert found.kind == kind
    assert says in str(found)


@pytest.mark.usefixtures("client", "installed")
def test_without_an_api_server(
    kubectl: Callable[[str], None], tmp_path: Path, client: Client
) -> None:
    text = Path(os.environ["KUBECONFIG"]).read_text()
    away = tmp_path / "away"
    away.write_text(text.replace(client.server, "https://127.0.0.1:1"))
    assert refusal("--kubeconfig", str(away))[0] == query_client.UNREACHABLE


@pytest.mark.usefixtures("installed")
def test_a_kubectl_that_fails_or_says_nothing_of_a_port(
    kubectl: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "kubectl port-forward service/lockstep-central: "
    kubectl("echo one >&2; echo 'two   words'; exit 1")
    assert refusal() == (query_client.UNREACHABLE, f"{head}one two words")
    kubectl(
        "echo Forwarding from 10.0.0.1:1; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"
    )
    monkeypatch.setattr(scheduler_access, "MAX_OUTPUT", 4096)
    assert len(refusal()[1]) == len(head) + 500
    monkeypatch.setattr(scheduler_access, "FORWARD_S", 0.05)
    kubectl("exec /bin/sleep 600")
    assert refusal() == (query_client.UNREACHABLE, f"{head}it said nothing for 0.05 s")
    kubectl(f"echo x; {FORWARDS}")
    monkeypatch.setattr(scheduler_access, "FORWARD_S", 30.0)
    assert forwarded().server.endswith(":54321")
    scheduler_access._end_all()
    wait_gone([pid for pid, _ in calls(tmp_path)])
    assert not scheduler_access._children


@pytest.mark.usefixtures("installed")
def test_what_kubectl_goes_on_to_say_does_not_stop_it(
    kubectl: Callable[[str], None], tmp_path: Path
) -> None:
    """A pipe has room for 64 KiB."""
    done = tmp_path / "done"
    talks = "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo 'Handling connection for 9443 ......'; done"
    kubectl(
        f"echo 'Forwarding from 127.0.0.1:54321 -> 9443'; {talks}; echo > {done}; exec /bin/sleep 600"
    )
    forwarded()
    for _ in range(6000):
        if done.exists():
            break
        threading.Event().wait(0.005)
    assert done.exists()
