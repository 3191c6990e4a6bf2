"""Log lines that somebody else can cause: at most one a minute for the same cause, and a bounded number in all."""

import logging
import threading
import time

AGAIN_S = 60.0
CAUSES = 50  # a minute


class ThrottledLog:
    """A log with a limit for each cause, for any thread. Lines that are left out are counted, and reported with the
    next line of the same cause."""

    def __init__(self, log: logging.Logger, again_s: float = AGAIN_S, causes: int = CAUSES) -> None:
        self._log = log
        self._again_s = again_s
        self._causes = causes
        self._lock = threading.Lock()
        self._began = float("-inf")
        self._left_out: dict[str, int] = {}  # by cause, since _began

    def warning(self, cause: str, message: str, *args: object) -> None:
        self._write(cause, message, args, exception=False)

    def exception(self, cause: str, message: str, *args: object) -> None:
        """Logs with the traceback of the exception that is being handled."""
        self._write(cause, message, args, exception=True)

    def error(self, cause: str, error: BaseException, message: str, *args: object) -> None:
        """Logs with the traceback of an exception that was handled before."""
        self._write(cause, message, args, exception=error)

    def _write(
        self, cause: str, message: str, args: tuple[object, ...], *, exception: bool | BaseException
    ) -> None:
        with self._lock:
            now = time.monotonic()
            before = 0
            if now - self._began >= self._again_s:
                before = sum(self._left_out.values())
                self._began, self._left_out = now, {}
            if cause in self._left_out or len(self._left_out) >= self._causes:
                known = cause if cause in self._left_out else next(iter(self._left_out))
                self._left_out[known] += 1
                return
            self._left_out[cause] = 0
        if before:
            message, args = message + " (%d similar messages were left out)", (*args, before)
        if exception:
            self._log.error(message, *args, exc_info=exception)
        else:
            self._log.warning(message, *args)
