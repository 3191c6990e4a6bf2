"""Work that is done again and again, in a thread of its own, beside the scheduling loop.

class Audit(Rounds):
    def __init__(self, runtime: Runtime) -> None:
        super().__init__("assumption-audit", every_s=10.0, runtime=runtime)

    def check(self) -> None: ...

audit.start()
audit.stop()
"""

import logging
from abc import ABC, abstractmethod

from central.kube.transport.runtime import Runtime

log = logging.getLogger(__name__)


class Rounds(ABC):
    """A bug ends its round only."""

    def __init__(self, name: str, *, every_s: float, runtime: Runtime) -> None:
        self._name, self._every_s = name, every_s
        self._ending = runtime.flag()
        self._thread = runtime.thread(self._run, name)

    @property
    def ending(self) -> bool:
        """Returns whether a round that is under way should come to its end."""
        return self._ending.is_set()

    @abstractmethod
    def check(self) -> object:
        """One round. Raises TimeoutError if the loop is too busy to answer it."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self.check()
            except TimeoutError:
                log.debug("%s: the loop is too busy for a round", self._name)
            except Exception:
                log.exception("%s: unhandled exception in a round (bug)", self._name)
