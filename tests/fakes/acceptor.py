"""A listening socket whose connections a thread hands on, and that ends without losing one.

A connection that is accepted while another thread closes the listener would belong to nobody: it is left to the garbage
collector, whose warning then fails whatever test runs at that time. So the thread ends first."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Acceptor:
    def __init__(self, take: Callable[[socket.socket], None]) -> None:
        """take: is called in the thread, and owns the connection from then on. If it raises OSError, the connection is
        closed."""
        self._take = take
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="acceptor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops accepting connections. take() is not called after it returns."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                self._take(connection)
            except OSError:
                connection.close()
