"""A link to a server on this machine that can be cut: packets are lost, and nobody is told that the connection is
gone."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CutLink:
    def __init__(self, port: int) -> None:
        self._server_port = port
        self._cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self.accepted = 0  # connections
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._cut.set()

    def heal(self) -> None:
        """For new connections: those that lost packets stay dead."""
        self._cut.clear()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                self.accepted += 1
                if self._cut.is_set():
                    continue  # it is never answered
                far = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets.append(far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._cut.is_set():
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def cut_link(port: int) -> Iterator[CutLink]:
    made = CutLink(port)
    try:
        yield made
    finally:
        made.close()
