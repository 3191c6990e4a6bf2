"""When each pod of a namespace was first seen, and when it had ended. A watch may end at any time, as when the API
server finds its client too slow: then all are listed, and the watch goes on from there."""

import threading
import time
from contextlib import suppress
from typing import Any

import orjson

from central.kube.transport.http_client import Client, StatusError, Stream, Unreachable

AGAIN_S = 0.2  # between two lists where watches end at once


class PodWatch:
    """Pods that are there at the beginning are left out."""

    def __init__(self, client: Client, path: str, seconds: int) -> None:
        """path: of the namespace's pods. seconds: how long it is needed at most."""
        self._client, self._path, self._seconds = client, path, seconds
        self._closed, self._lock = threading.Event(), threading.Lock()
        self.first: dict[str, float] = {}  # by name
        self.ended: dict[str, float] = {}
        self.lists = 0  # since the beginning
        found = client.get(path)
        self._before = {pod["metadata"]["name"] for pod in found["items"]}
        self._version = found["metadata"]["resourceVersion"]
        self._stream = self._watch()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._stream.close()
        self._thread.join(10)
        with self._stream:
            pass  # it was opened meanwhile

    def count(self) -> int:
        """How many pods the API holds now. After it all of them have been seen."""
        return len(self._list())

    def _watch(self) -> Stream:
        query = f"watch=1&resourceVersion={self._version}&timeoutSeconds={self._seconds}"
        return self._client.stream(f"{self._path}?{query}", self._seconds)

    def _follow(self) -> None:
        while not self._closed.is_set():
            with suppress(Unreachable, StatusError), self._stream as lines:
                self._read(lines)
            while not self._closed.wait(AGAIN_S):
                with suppress(Unreachable, StatusError):
                    self._list()
                    self._stream = self._watch()
                    break

    def _read(self, lines: Stream) -> None:
        for line in lines:
            event = orjson.loads(line)
            if event["type"] == "ERROR":
                return
            self._version = event["object"]["metadata"]["resourceVersion"]
            self._note(event["object"])

    def _list(self) -> list[str]:
        found = self._client.get(self._path)
        self.lists += 1
        self._version = found["metadata"]["resourceVersion"]
        for pod in found["items"]:
            self._note(pod)
        names = {pod["metadata"]["name"] for pod in found["items"]}
        return sorted(names - self._before)

    def _note(self, pod: Any) -> None:
        name, now = pod["metadata"].get("name", ""), time.perf_counter()
        if not name or name in self._before:
            return
        with self._lock:
            self.first.setdefault(name, now)
            if (pod.get("status") or {}).get("phase") == "Succeeded":
                self.ended.setdefault(name, now)
