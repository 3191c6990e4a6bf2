"""A TCP proxy between a client and a server, which a test can disconnect and connect again."""

import contextlib
import socket
import threading
from typing import Self

from tests.fakes.acceptor import Acceptor


class Cable:
    def __init__(self, port: int) -> None:
        self._to = port
        self._plugged = True
        self._open: list[socket.socket] = []
        self._frozen: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._acceptor = Acceptor(self._take)
        self.port = self._acceptor.port
        self.url = f"http://127.0.0.1:{self.port}"

    def pull(self) -> None:
        """Breaks open connections, and new ones at once."""
        with self._lock:
            self._plugged = False
            for end in self._open:
                _shut(end)
            self._open.clear()

    def plug(self) -> None:
        with self._lock:
            self._plugged = True

    def freeze(self, to: int = 0) -> None:
        """Open connections stay open but carry nothing any more, as if the machine lost its power.
        New ones work, to another port if one is given."""
        with self._lock:
            self._frozen.update(self._open)
            self._to = to or self._to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._acceptor.close()
        self.pull()
        for thread in list(self._threads):
            thread.join()

    def _take(self, near: socket.socket) -> None:
        with self._lock:
            if not self._plugged:
                near.close()
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            self._open += (near, far)
        for source, drain in ((near, far), (far, near)):
            thread = threading.Thread(target=self._pump, args=(source, drain))
            self._threads.append(thread)
            thread.start()

    def _pump(self, source: socket.socket, drain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source not in self._frozen:
                    drain.sendall(data)
        if source not in self._frozen:
            _shut(drain)
        source.close()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
