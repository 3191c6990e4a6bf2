"""A watch on a clock of its own: each request takes the next of some answers, and what was asked, and when, is kept."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from central.kube.decode import api_kinds
from central.kube.decode.api_kinds import Kind
from central.kube.decode.decoder import Decoder
from central.kube.transport import watch
from central.kube.transport.http_client import StatusError
from central.model.facts import Fact
from central.model.json_types import Json

RECHECK_S = 30.0
# A line of a watch; seconds in which none comes; what ends it; what happens meanwhile.
Line = Json | bytes | float | Exception | Callable[[], None]
Answer = Json | Exception | Sequence[Line]  # a list; none; a watch
KINDS = api_kinds.kinds(Decoder(("lockstep",), ("rack",)), elastic=True)


def kind(name: str) -> Kind:
    return next(each for each in KINDS if each.resource.full_name == name)


class _Over(BaseException):
    """No answer is left."""


class Misplaced(BaseException):
    """The next answer is for another request. No handler of the watch may take it for an error."""


@dataclass
class _Thread:
    target: Callable[[], None]
    begun: bool = False
    joined: bool = False

    def start(self) -> None:
        self.begun = True

    def join(self, timeout: float | None = None) -> None:
        self.joined = True

    def is_alive(self) -> bool:
        return False


@dataclass
class _Flag:
    clock: "_Clock"
    on: bool = False

    def set(self) -> None:
        self.on = True

    def clear(self) -> None:
        self.on = False

    def is_set(self) -> bool:
        return self.on

    def wait(self, timeout: float | None = None) -> bool:
        if not self.on:
            assert timeout is not None, "nobody would set it"
            self.clock.now += timeout
        return self.on


@dataclass
class _Clock:
    """Draws the greatest number each time, or the least."""

    now: float = 1000.0
    draws_least: bool = False
    threads: list[_Thread] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def uniform(self, low: float, high: float) -> float:
        return low if self.draws_least else high

    def flag(self) -> _Flag:
        return _Flag(self)

    def mailbox(self) -> Any:
        raise NotImplementedError

    def thread(self, target: Callable[[], None], name: str) -> _Thread:
        self.threads.append(_Thread(target))
        return self.threads[-1]


@dataclass
class _Stream:
    clock: _Clock
    lines: Sequence[Line]
    silence_s: list[float]
    closed: bool = False  # from another thread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[bytes]:
        for line in self.lines:
            if isinstance(line, Exception):
                raise line
            if isinstance(line, float):
                self.clock.now += line
            elif isinstance(line, dict):
                yield json.dumps(line).encode()
            elif isinstance(line, bytes):
                yield line
            else:
                line()
            if self.closed:
                return

    def set_silence(self, timeout_s: float) -> None:
        self.silence_s.append(timeout_s)

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class Request:
    at_s: float  # since the start
    path: str
    watches: bool
    metadata_only: bool
    late: dict[str, tuple[float, str]]  # out_of_sync() at that time
    synced: bool
    stream: _Stream | None = None

    @property
    def version(self) -> str:
        """From which a watch goes on; empty: it is a list."""
        found = dict(part.split("=") for part in self.path.partition("?")[2].split("&"))
        return found.get("resourceVersion", "")


class Course:
    """Follows kinds, each until the answers are used up."""

    server = "https://api"

    def __init__(
        self, answers: Sequence[Answer], *kinds: Kind, served: dict[str, Answer] | None = None
    ) -> None:
        """served: by path, the documents of discovery; any other is not found."""
        self.clock = _Clock()
        self.facts: list[Fact] = []
        self.requests: list[Request] = []
        self.bounds: list[int | None] = []  # of the bytes of each list's answer
        self.closed = 0  # how often the idle connections were closed
        self._began = self.clock.now
        self.answers = list(answers)
        self.served = served or {}
        self.discovered: list[str] = []  # the paths of discovery that were asked for
        self.meanwhile: dict[int, Callable[[], None]] = {}  # in another thread, by request
        self.watches = watch.start(
            kinds or [kind("pods")],
            self,  # type: ignore[arg-type]
            self.facts.append,
            recheck_s=RECHECK_S,
            runtime=self.clock,
        )

    def run(self, number: int = 0) -> "Course":
        """number: of the kind."""
        thread = self.clock.threads[number]
        assert thread.begun
        try:
            thread.target()
        except _Over:
            self.requests.pop()
        return self

    def steps(self) -> list[tuple[float, str]]:
        """When each request was sent, and from where: "list", or the resourceVersion of a watch."""
        return [(round(each.at_s, 3), each.version or "list") for each in self.requests]

    def pauses(self) -> list[float]:
        """Between the requests."""
        times = [each.at_s for each in self.requests]
        return [round(later - now, 3) for now, later in itertools.pairwise(times)]

    def get(self, path: str, *, metadata_only: bool = False, most_bytes: int | None = None) -> Json:
        if "?" not in path:
            return self._discovery(path)
        self.bounds.append(most_bytes)
        answer = self._next(path, None, metadata_only)
        if not isinstance(answer, dict):
            raise Misplaced(f"{path}: {answer!r}")
        return answer

    def _discovery(self, path: str) -> Json:
        self.discovered.append(path)
        answer = self.served.get(path, StatusError(404, "NotFound", "not found"))
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    def stream(self, path: str, timeout_s: float, *, metadata_only: bool = False) -> _Stream:
        stream = _Stream(self.clock, (), [timeout_s])
        stream.lines = self._next(path, stream, metadata_only)
        if isinstance(stream.lines, dict):
            raise Misplaced(f"{path}: {stream.lines!r}")
        return stream

    def close(self) -> None:
        self.closed += 1

    def _next(self, path: str, stream: _Stream | None, metadata_only: bool) -> Any:
        late, synced = self.watches.out_of_sync(), self.watches.wait_synced(0)
        at_s = self.clock.now - self._began
        self.requests.append(
            Request(at_s, path, stream is not None, metadata_only, late, synced, stream)
        )
        if at := self.meanwhile.get(len(self.requests) - 1):
            at()
        answer = self.answers.pop(0) if self.answers else _Over()
        if isinstance(answer, BaseException):
            raise answer
        return answer
