"""A runtime whose clock stands still until somebody sleeps or a test moves it; the rest is that of a real one."""

from typing import Any

from central.kube.transport.runtime import RUNTIME


class StillClock:
    def __init__(self, real: Any = RUNTIME) -> None:
        self.now = 0.0
        self._real = real

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
