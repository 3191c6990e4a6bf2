"""One TLS gRPC server on its own thread and event loop: thousands of long polls are coroutines.

server = serve("0.0.0.0:9443", credentials, [intake.add_to, desk.add_to])   # Unusable: exit 2
server.port; server.stop()
"""

from collections.abc import Callable, Sequence

import grpc.aio

from central.tls import Credentials


class Unusable(Exception):
    """The address can't be listened on: a sentence for the user, exit 2."""


class Server:
    port: int

    def stop(self) -> None:
        raise NotImplementedError


def serve(
    listen: str, credentials: Credentials, services: Sequence[Callable[[grpc.aio.Server], None]]
) -> Server:
    raise NotImplementedError
