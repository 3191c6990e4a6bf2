"""A fake scheduler: the Fleet service behind TLS with its own CA. It records reports and serves the
plans that a test sets."""

import datetime
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.stubs import fleet_pb2_grpc as rpc
from protos.topology import ClaimPlan, Grant


class Authority:
    """A certificate authority, and a certificate from it for a server on this machine."""

    def __init__(self, *names: str) -> None:
        own = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test scheduler")])
        ca = (
            _builder(issuer, issuer, own)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(own, hashes.SHA256())
        )
        certificate = (
            _builder(subject, issuer, key)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.DNSName(name) for name in names or ("localhost",)]
                ),
                critical=False,
            )
            .sign(own, hashes.SHA256())
        )
        self.ca = ca.public_bytes(serialization.Encoding.PEM)
        self._certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self._key = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials([(self._key, self._certificate)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )


class FakeScheduler(rpc.FleetServicer):
    def __init__(self, directory: Path, *names: str, hold_s: float = 1.0) -> None:
        self.hold_s = hold_s  # longest time that an Intents call is held
        self.ca_file, self.token_file = directory / "ca.crt", directory / "token"
        self.token = "eyJ.first"
        self.token_file.write_text(self.token)
        self.renew(*names)
        self.reports: list[pb.NodeReport] = []
        self.forgets = False  # every heartbeat is answered with want_full
        self.old = False  # a version without support for reports without the topology
        self.on_report: Callable[[pb.NodeReport], None] = lambda report: None
        self.arrived = 0  # the version of the plans that the agent has
        self.seen: dict[str, int] = {}  # ... that each agent has, by boot id
        self._intents = pb.IntentList(version=1)
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None
        self.port = 0

    def renew(self, *names: str) -> None:
        """Another CA; running servers keep theirs."""
        self.authority = Authority(*names)
        self.ca_file.write_bytes(self.authority.ca)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def start(self) -> None:
        server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        rpc.add_FleetServicer_to_server(self, server)
        self.port = server.add_secure_port(f"localhost:{self.port}", self.authority.credentials())
        server.start()
        self._server = server

    def stop(self) -> None:
        if self._server:
            self._server.stop(grace=None).wait()
            self._server = None

    def plan(self, *plans: Grant, claims: Iterable[ClaimPlan] = ()) -> int:
        """Returns their version."""
        with self._changed:
            self._intents = pb.IntentList(
                version=self._intents.version + 1,
                intents=wire.to_grants(plans),
                claims=wire.messages(pb.ClaimPlan, claims),
            )
            self._changed.notify_all()
            return self._intents.version

    def _check(self, context: grpc.ServicerContext) -> None:
        given = dict(context.invocation_metadata()).get("authorization")
        if given != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not valid")

    def Report(self, request: pb.NodeReport, context: grpc.ServicerContext) -> pb.ReportAck:
        self._check(context)
        self.reports.append(request)
        self.on_report(request)
        if self.old and not request.heartbeat and not request.HasField("topology"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "topology: a full report has one")
        leaves_out = request.heartbeat or bool(request.topology_of)
        return pb.ReportAck(want_full=leaves_out and self.forgets)

    def Intents(self, request: pb.IntentsRequest, context: grpc.ServicerContext) -> pb.IntentList:
        self._check(context)
        self.arrived = self.seen[request.boot_id] = request.version
        with self._changed:
            self._changed.wait_for(
                lambda: self._intents.version != request.version or not context.is_active(),
                timeout=min(request.wait_s, self.hold_s),
            )
            return self._intents
