"""The client's side of the desk: what `lockstep topology` and `lockstep explain` ask the centre."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from central.server import argtypes
from protos.stubs import fleet_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

PATIENCE_S = 10.0
# Beside the flags and the environment: where the centre's own pod has them.
CA_FILES = ("/run/lockstep/ca.crt", "/etc/lockstep/ca/ca.crt")
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"
SERVER = "localhost:9443"


class CannotAsk(Exception):
    """A sentence for the user."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where the centre is, and what proves both sides."""

    server: str
    ca_file: str
    token_file: str
    server_name: str = ""


def add_flags(parser: argparse.ArgumentParser) -> None:
    get = os.environ.get
    parser.add_argument(
        "--server",
        type=argtypes.address,
        default=get("LOCKSTEP_SERVER") or SERVER,
        metavar="HOST:PORT",
        help="the centre (LOCKSTEP_SERVER; default %(default)s)",
    )
    parser.add_argument(
        "--ca-file",
        default=get("LOCKSTEP_CA") or next(filter(os.path.exists, CA_FILES), CA_FILES[0]),
        metavar="FILE",
        help="the CA that signed its certificate (LOCKSTEP_CA; default %(default)s)",
    )
    parser.add_argument(
        "--token-file",
        default=get("LOCKSTEP_TOKEN_FILE") or TOKEN_FILE,
        metavar="FILE",
        help="your bearer token for the cluster (LOCKSTEP_TOKEN_FILE; default %(default)s)",
    )
    parser.add_argument(
        "--server-name",
        default=get("LOCKSTEP_SERVER_NAME") or "",
        metavar="NAME",
        help="the name to expect in the certificate, where it is not the host's",
    )


def door(args: argparse.Namespace) -> Door:
    return Door(args.server, args.ca_file, args.token_file, args.server_name)


def topology(where: Door, node: str) -> pb.TopologyReply:
    query = pb.TopologyQuery(node=node)
    reply: pb.TopologyReply = _call(where, lambda desk, **kw: desk.Topology(query, **kw))
    return reply


def explain(where: Door, namespace: str, name: str) -> pb.ExplainReply:
    query = pb.ExplainQuery(namespace=namespace, name=name)
    reply: pb.ExplainReply = _call(where, lambda desk, **kw: desk.Explain(query, **kw))
    return reply


def _call(where: Door, ask: "Callable[..., Any]") -> Any:
    import grpc

    from protos.stubs.fleet_pb2_grpc import DeskStub

    ca = _read(
        where.ca_file, "--ca-file (the ConfigMap lockstep-ca of the centre's namespace holds it)"
    )
    token = (
        _read(where.token_file, "--token-file (kubectl create token makes one)").decode().strip()
    )
    options = [("grpc.ssl_target_name_override", where.server_name)] if where.server_name else []
    credentials = grpc.ssl_channel_credentials(ca)
    with grpc.secure_channel(where.server, credentials, options) as channel:
        try:
            return ask(
                DeskStub(channel),
                metadata=(("authorization", f"Bearer {token}"),),
                timeout=PATIENCE_S,
            )
        except grpc.RpcError as error:
            raise CannotAsk(_sentence(where, error)) from error


def _read(path: str, flag: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CannotAsk(f"{path}: {error.strerror}; name the right file with {flag}") from error


def _sentence(where: Door, error: "grpc.RpcError") -> str:
    from grpc import StatusCode

    details = error.details() or "no details"
    match error.code():
        case StatusCode.UNAVAILABLE | StatusCode.DEADLINE_EXCEEDED:
            return (
                f"no centre answers at {where.server} ({details}); is it running, and is --server "
                "or LOCKSTEP_SERVER right?"
            )
        case StatusCode.UNAUTHENTICATED | StatusCode.PERMISSION_DENIED:
            return (
                f"the centre at {where.server} refuses: {details} (--token-file {where.token_file})"
            )
        case _:
            return details
