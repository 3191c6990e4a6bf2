"""The client of the query service against the service itself: each call, and each way in which it fails."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from central.server.grpc import query_client
from central.server.grpc.query_client import CannotAsk, SchedulerAddress
from protos.common.sentence_parser import SentenceParser
from tests.central.cli.test_report_command import CannedUsage
from tests.central.scheduler_process import SchedulerServer, credentials
from tests.central.server.test_query_service import CannedAnswers


@pytest.fixture(scope="module")
def address() -> Iterator[SchedulerAddress]:
    """With the certificate and the token in memory."""
    scheduler = SchedulerServer(CannedAnswers(), usage=CannedUsage())
    ca = credentials().ca
    yield SchedulerAddress(scheduler.address, "", "", "localhost", certificate=ca, token="user")
    scheduler.server.stop()


@pytest.fixture
def files(address: SchedulerAddress, tmp_path: Path) -> SchedulerAddress:
    """With both in files."""
    ca, token = tmp_path / "ca", tmp_path / "token"
    ca.write_bytes(address.certificate)
    token.write_text(f"{address.token}\n")
    return SchedulerAddress(address.server, str(ca), str(token), "localhost")


def refused(address: SchedulerAddress, node: str = "") -> tuple[str, str]:
    with pytest.raises(CannotAsk) as raised:
        query_client.topology(address, node)
    return raised.value.kind, str(raised.value)


def test_each_call(address: SchedulerAddress) -> None:
    assert [node.name for node in query_client.topology(address, "").nodes] == ["n1", "n2"]
    assert [node.name for node in query_client.topology(address, "n2").nodes] == ["n2"]
    assert query_client.explain(address, "default", "g").reason == "does not fit"
    assert not query_client.explain(address, "g", "default").found
    assert query_client.explain(address, "team", "held").namespace == "team"
    assert query_client.queue(address, "research").tenants
    reply = query_client.usage(address, 100.0, 200.0, ["queue", "namespace"])
    assert (reply.since, reply.until) == (100.0, 200.0)
    assert [len(row.keys) for row in reply.rows] == [2, 2]


def test_certificate_and_token_in_files(files: SchedulerAddress, tmp_path: Path) -> None:
    assert query_client.topology(files, "").nodes
    assert refused(replace(files, ca_file="/no/ca")) == (
        query_client.USAGE,
        "/no/ca: No such file or directory; set --ca-file (ConfigMap lockstep-ca in the scheduler's namespace)",
    )
    assert refused(replace(files, token_file="/no/token")) == (
        query_client.USAGE,
        "/no/token: No such file or directory; set --token-file (kubectl create token)",
    )
    assert refused(replace(files, ca_file=files.token_file)) == (
        query_client.USAGE,
        f"{files.token_file}: no certificate in PEM; set --ca-file",
    )


@pytest.mark.parametrize("token", ["expired", "other-account"])
def test_whose_token_is_refused(
    token: str, address: SchedulerAddress, files: SchedulerAddress
) -> None:
    Path(files.token_file).write_text(token)
    kind, why = refused(files)
    assert kind == query_client.REFUSED
    assert why.startswith(f"the scheduler at {files.server} refused: ")
    assert why.endswith(f"(--token-file {files.token_file})")
    assert refused(replace(address, token=token))[1].endswith("(its own token)")


def test_what_does_not_exist_or_does_not_answer(address: SchedulerAddress) -> None:
    assert refused(address, "n3") == (query_client.NOT_FOUND, 'node "n3" not found')
    for away in (
        replace(address, server="127.0.0.1:1"),
        replace(address, server_name="another"),  # that its certificate does not have
    ):
        kind, why = refused(away)
        assert kind == query_client.UNREACHABLE
        assert why.startswith(f"no scheduler answers at {away.server} (")
        assert why.endswith("); check that it runs, and --server or LOCKSTEP_SERVER")


def test_no_proxy_is_asked_for_a_forwarded_port(
    address: SchedulerAddress, files: SchedulerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:1")
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert query_client.topology(address, "").nodes
    assert refused(files)[0] == query_client.UNREACHABLE


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ((), False),
        (("--server-name", "x"), False),
        (("--ca-file", query_client.CA_FILES[1]), False),
        (("--server", "x:9443"), True),
        (("--ca-file", "/no/ca"), True),
        (("--token-file", "/no/token"), True),
    ],
)
def test_who_names_a_scheduler(
    argv: tuple[str, ...], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVER", "CA", "TOKEN_FILE", "SERVER_NAME"):
        monkeypatch.delenv(f"LOCKSTEP_{name}", raising=False)
    parser = argparse.ArgumentParser()
    query_client.add_flags(parser)
    given = parser.parse_args(argv)
    assert query_client.is_named(given) == named
    assert query_client.scheduler_address(given) == SchedulerAddress(
        given.server, given.ca_file, given.token_file, given.server_name
    )


def test_an_address_has_a_port() -> None:
    parser = SentenceParser(exit_on_error=False)
    query_client.add_flags(parser)
    with pytest.raises(argparse.ArgumentError, match="is not HOST:PORT"):
        parser.parse_args(["--server", "scheduler"])


def test_the_schedulers_own_pod_is_named_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "ca.crt"
    there.touch()
    monkeypatch.setattr(query_client, "CA_FILES", (str(tmp_path / "none"), str(there)))
    parser = argparse.ArgumentParser()
    query_client.add_flags(parser)
    given = parser.parse_args([])
    assert given.ca_file == str(there)
    assert query_client.is_named(given)
