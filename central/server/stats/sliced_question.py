"""A question to the scheduling loop that is answered in slices, so that it delays no cycle by more than SLICE_S.

    def steps(scheduler):                     # a generator
        for key in list(scheduler.state.pending.waiting):
            ...
            yield                             # here the loop may go on with its next cycle
        return answer

    answer = ask_in_slices(loop, steps)

Between two slices the state may change, so a step looks up by key what it reads. The answer is not a picture of one
moment: the parts of it are as old as the question took.
"""

import time
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from central.model.facts import Fact
from central.scheduler.scheduler import Scheduler

SLICE_S = 0.004
Answer = TypeVar("Answer")
Steps = Callable[[Scheduler], Generator[None, None, Any]]


class QuestionLoop(Protocol):
    """The part of server.loop.Loop that is needed here."""

    def ask(self, question: Callable[[Scheduler], Answer], timeout_s: float = ...) -> Answer: ...


class FactLoop(QuestionLoop, Protocol):
    def put(self, fact: Fact) -> None: ...


class SlicedQuestion:
    def __init__(
        self,
        steps: Steps,
        slice_s: float = SLICE_S,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._make, self._slice_s, self._clock = steps, slice_s, clock
        self._steps: Generator[None, None, Any] | None = None
        self.answer: Any = None

    def __call__(self, scheduler: Scheduler) -> bool:
        """Runs for one slice. Returns whether the answer is complete."""
        began = self._clock()
        try:
            if self._steps is None:
                self._steps = self._make(scheduler)
            next(self._steps)
            while self._clock() - began < self._slice_s:
                next(self._steps)
        except StopIteration as end:
            self.answer = end.value
            return True
        return False


def ask_in_slices(
    loop: QuestionLoop,
    steps: Steps,
    *,
    clock: Callable[[], float] = time.perf_counter,
    stopped: Callable[[], bool] = lambda: False,
) -> Any:
    """Returns the answer; None if `stopped` comes true before it is complete. Raises TimeoutError."""
    question = SlicedQuestion(steps, clock=clock)
    while not loop.ask(question):
        if stopped():
            return None
    return question.answer
