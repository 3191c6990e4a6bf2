"""An HTTP server whose clients may go away."""

from http.server import ThreadingHTTPServer
from typing import Any


class QuietServer(ThreadingHTTPServer):
    """Prints nothing about a client that is gone: its thread may find out in the middle of a later test, which reads
    stderr."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Is not told."""
