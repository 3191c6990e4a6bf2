"""The client of the query service: asks the scheduler for `lockstep topology`, `explain`, `report` and the like."""

import argparse
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from central.server import argtypes
from protos.names import CA_CONFIG_MAP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import grpc

    from protos.stubs import fleet_pb2 as pb
    from protos.stubs.fleet_pb2_grpc import DeskStub

Reply = TypeVar("Reply")
TIMEOUT_S = 10.0
# Defaults where neither flag nor environment names a file: the paths in the scheduler's own pod.
CA_FILES = ("/run/lockstep/ca.crt", "/etc/lockstep/ca/ca.crt")
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"
SERVER = "localhost:9443"


# Kinds of failures.
USAGE, NOT_FOUND, REFUSED, UNREACHABLE = "usage", "not found", "refused", "unreachable"


class CannotAsk(Exception):
    """A sentence for the user. kind: of the failure."""

    def __init__(self, why: str, kind: str = USAGE) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class SchedulerAddress:
    """The scheduler's address, and what authenticates both sides: files, or their content.

    certificate: of the authority that signed the scheduler's, in PEM."""

    server: str
    ca_file: str
    token_file: str
    server_name: str = ""
    certificate: bytes = b""
    token: str = field(default="", repr=False)


def add_flags(parser: argparse.ArgumentParser) -> None:
    for typed, about, env, default, shown in (
        ("--server HOST:PORT", "address of the scheduler", "LOCKSTEP_SERVER", SERVER, ""),
        ("--ca-file FILE", "CA certificate of the scheduler", "LOCKSTEP_CA", _ca_file(), ""),
        ("--token-file FILE", "bearer token", "LOCKSTEP_TOKEN_FILE", TOKEN_FILE, ""),
        (
            "--server-name NAME",
            "expected name in the scheduler's certificate",
            "LOCKSTEP_SERVER_NAME",
            "",
            "the host of --server",
        ),
    ):
        check = argtypes.address if typed.endswith(":PORT") else str
        argtypes.add_flag(parser, typed, about, env=env, default=default, shown=shown, type=check)


def _ca_file() -> str:
    return next(filter(os.path.exists, CA_FILES), CA_FILES[0])


def is_named(args: argparse.Namespace) -> bool:
    """Returns whether flags or the environment name a scheduler, or this is the scheduler's own pod."""
    return (
        args.server != SERVER
        or args.ca_file not in CA_FILES
        or args.token_file != TOKEN_FILE
        or Path(args.ca_file).exists()
    )


def scheduler_address(args: argparse.Namespace) -> SchedulerAddress:
    return SchedulerAddress(args.server, args.ca_file, args.token_file, args.server_name)


def topology(where: SchedulerAddress, node: str) -> "pb.TopologyReply":
    from protos.stubs import fleet_pb2 as pb

    return _call(where, lambda desk: desk.Topology, pb.TopologyQuery(node=node))


def explain(where: SchedulerAddress, namespace: str, name: str) -> "pb.ExplainReply":
    from protos.stubs import fleet_pb2 as pb

    return _call(where, lambda desk: desk.Explain, pb.ExplainQuery(namespace=namespace, name=name))


def queue(where: SchedulerAddress, name: str) -> "pb.QueueReply":
    from protos.stubs import fleet_pb2 as pb

    return _call(where, lambda desk: desk.Queue, pb.QueueQuery(name=name))


def usage(
    where: SchedulerAddress, since: float, until: float, by: "Sequence[str]"
) -> "pb.UsageReply":
    from protos.stubs import fleet_pb2 as pb

    return _call(where, lambda desk: desk.Usage, pb.UsageQuery(since=since, until=until, by=by))


def page(where: SchedulerAddress, path: str, **query: str) -> Any:
    """A page of the console's data (central/server/web/web_api.py)."""
    from protos.stubs import fleet_pb2 as pb

    found = _call(where, lambda desk: desk.Page, pb.PageQuery(path=path, query=query))
    return json.loads(found.json)


def pages(where: SchedulerAddress, path: str, **query: str) -> "list[Any]":
    """The rows of all pages."""
    rows: list[Any] = []
    after: int | None = 0
    while after is not None:
        found = page(where, path, **query, after=str(after))
        rows, after = [*rows, *found["rows"]], found["next"]
    return rows


def _call(
    where: SchedulerAddress, method: "Callable[[DeskStub], Callable[..., Reply]]", query: object
) -> Reply:
    import grpc

    from protos.stubs.fleet_pb2_grpc import DeskStub

    ca = where.certificate or _read(
        where.ca_file, f"--ca-file (ConfigMap {CA_CONFIG_MAP} in the scheduler's namespace)"
    )
    token = (
        where.token
        or _read(where.token_file, "--token-file (kubectl create token)").decode().strip()
    )
    options: list[tuple[str, Any]] = []
    if where.server_name:
        options.append(("grpc.ssl_target_name_override", where.server_name))
    if where.token:  # a forwarded port of this machine, which no proxy reaches
        options.append(("grpc.enable_http_proxy", 0))
    if b"-----BEGIN CERTIFICATE-----" not in ca:
        raise CannotAsk(f"{where.ca_file}: no certificate in PEM; set --ca-file")
    credentials = grpc.ssl_channel_credentials(ca)
    with grpc.secure_channel(where.server, credentials, options) as channel:
        try:
            metadata = (("authorization", f"Bearer {token}"),)
            return method(DeskStub(channel))(query, metadata=metadata, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise CannotAsk(_sentence(where, error), _kind(error)) from error


def _read(path: str, flag: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CannotAsk(f"{path}: {error.strerror}; set {flag}") from error


def _kind(error: "grpc.RpcError") -> str:
    from grpc import StatusCode

    match error.code():
        case StatusCode.NOT_FOUND:
            return NOT_FOUND
        case StatusCode.UNAVAILABLE | StatusCode.DEADLINE_EXCEEDED:
            return UNREACHABLE
        case StatusCode.INVALID_ARGUMENT:
            return USAGE
        case _:
            return REFUSED


def _sentence(where: SchedulerAddress, error: "grpc.RpcError") -> str:
    from grpc import StatusCode

    details = error.details() or "no details"
    match error.code():
        case StatusCode.UNAVAILABLE | StatusCode.DEADLINE_EXCEEDED:
            return (
                f"no scheduler answers at {where.server} ({details}); check that it runs, and "
                "--server or LOCKSTEP_SERVER"
            )
        case StatusCode.UNAUTHENTICATED | StatusCode.PERMISSION_DENIED:
            source = f"--token-file {where.token_file}" if where.token_file else "its own token"
            return f"the scheduler at {where.server} refused: {details} ({source})"
        case _:
            return details
