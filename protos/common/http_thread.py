"""An HTTP server with an event loop in a thread of its own.

thread = HttpThread("probes", "127.0.0.1:9401", site, bounds)       # listens from now on
thread.start()
thread.port
thread.stop()                                                       # also if it was never started
"""

import asyncio
import ssl
import threading
from collections.abc import Mapping

from protos.common.http_server import Bounds, HttpServer, Site, listen

STOP_S = 5.0


class HttpThread:
    def __init__(
        self,
        name: str,
        address: str,
        site: Site,
        bounds: Bounds,
        headers: Mapping[str, str] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises OSError or ValueError, if it cannot listen on the address."""
        self.server = HttpServer(site, bounds, headers)
        self._listener, self._tls = listen(address), tls
        self.port = int(self._listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._switching = threading.Lock()

    def start(self) -> None:
        """Does nothing after stop(), which another thread may have called."""
        with self._switching:
            if not self._loop.is_closed():
                self._thread.start()

    def stop(self) -> None:
        """Waits for the end of the thread, STOP_S at most, and closes the socket."""
        with self._switching:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._ending.set)
                self._thread.join(STOP_S)
            elif not self._loop.is_closed():
                self._loop.close()
        self._listener.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self.server.serve(self._listener, self._tls)
        await self._ending.wait()
        await self.server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
