"""Work that is done again and again, in a thread of its own, beside the scheduling loop.

rounds = Rounds("assumption-audit", check, every_s=10.0, runtime=runtime)
rounds.start()
rounds.stop()
"""

import logging
from collections.abc import Callable

from central.kube.transport.runtime import Runtime

log = logging.getLogger(__name__)


class Rounds:
    """check raises TimeoutError if the loop is too busy to answer it. A bug ends its round only."""

    def __init__(
        self, name: str, check: Callable[[], object], *, every_s: float, runtime: Runtime
    ) -> None:
        self._name, self._check, self._every_s = name, check, every_s
        self._ending = runtime.flag()
        self._thread = runtime.thread(self._run, name)

    @property
    def ending(self) -> bool:
        """Returns whether a round that is under way should come to its end."""
        return self._ending.is_set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self._check()
            except TimeoutError:
                log.debug("%s: the loop is too busy for a round", self._name)
            except Exception:
                log.exception("%s: unhandled exception in a round (bug)", self._name)
