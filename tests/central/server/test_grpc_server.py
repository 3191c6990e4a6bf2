"""The gRPC server's address and certificate."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from central.server import tls
from central.server.grpc import grpc_server
from tests.central.scheduler_process import credentials
from tests.fakes.eventually import eventually


@pytest.fixture
def server() -> Iterator[grpc_server.Server]:
    server = grpc_server.serve("127.0.0.1:0", credentials(), [])
    yield server
    server.stop()


def test_a_port_in_use_is_one_sentence(server: grpc_server.Server) -> None:
    address = f"127.0.0.1:{server.port}"
    with pytest.raises(grpc_server.CannotStart, match=f"--listen {address}: the address is in use"):
        grpc_server.serve(address, credentials(), [])


@pytest.mark.parametrize("listen", ["", "9443", "host:", "host:x", ":1", "host:70000"])
def test_an_address_that_is_none(listen: str) -> None:
    with pytest.raises(grpc_server.CannotStart, match="is not HOST:PORT"):
        grpc_server.serve(listen, credentials(), [])


def test_a_port_is_free_again_after_stop(server: grpc_server.Server) -> None:
    server.stop()
    again = grpc_server.serve(f"127.0.0.1:{server.port}", credentials(), [])
    assert again.port == server.port
    again.stop()


def test_new_connections_see_the_renewed_certificate(caplog: pytest.LogCaptureFixture) -> None:
    now = datetime.now(UTC)
    first = tls.issue("ns", now)
    later = tls.renewed(first, "ns", now + timedelta(days=80))
    answers = iter([first])

    def renew() -> tls.Credentials:
        try:
            return next(answers)
        except StopIteration:
            raise OSError("the API server is away") from None

    server = grpc_server.serve("127.0.0.1:0", first, [], renew=renew, renew_every_s=0.02)
    try:
        eventually(lambda: "could not renew the certificate: the API server is away" in caplog.text)
        assert shown(server) == first.certificate
        answers = iter([later])
        eventually(lambda: shown(server) == later.certificate)
    finally:
        server.stop()


def test_a_standby_that_takes_over_renews_its_certificate_at_once() -> None:
    now = datetime.now(UTC)
    first = tls.issue("ns", now)
    later = tls.renewed(first, "ns", now + timedelta(days=80))
    server = grpc_server.serve("127.0.0.1:0", first, [], renew=lambda: later)
    try:
        eventually(lambda: shown(server) == later.certificate)
    finally:
        server.stop()


def shown(server: grpc_server.Server) -> bytes:
    """The certificate; nothing where the server behind the port was replaced in the middle of the handshake."""
    try:
        return ssl.get_server_certificate(("127.0.0.1", server.port), timeout=5).encode()
    except OSError:
        return b""
