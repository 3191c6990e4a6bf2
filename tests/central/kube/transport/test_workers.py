"""A pool of workers, and a limiter of rates, on virtual time."""

import random
from collections.abc import Callable

import pytest

from central.kube.transport.workers import RateLimiter, WorkerPool
from tests.fakes.still_clock import StillClock
from tests.simulation.nemesis.virtual_runtime import Kernel, Process


class Pool:
    """A pool, and when which of its items began."""

    def __init__(self, workers: int) -> None:
        self.kernel = Kernel(1)
        self.process: Process = self.kernel.process("p")
        self.workers = workers
        self.began: list[tuple[float, str]] = []
        self.backlogs: list[bool] = []
        self.stopped_at = 0.0

    def item(self, name: str, takes_s: float = 0.0) -> Callable[[], None]:
        def work() -> None:
            self.began.append((self.kernel.now, name))
            self.process.runtime.sleep(takes_s)

        return work

    def run(
        self, use: Callable[[WorkerPool], None], until_s: float = 100.0
    ) -> list[tuple[float, str]]:
        def main() -> None:
            use(WorkerPool("work", self.workers, self.process.runtime))

        self.alive = self.process.play(main, until_s)
        return self.began


def test_items_that_are_due_later_occupy_no_worker() -> None:
    pool = Pool(1)

    def use(workers: WorkerPool) -> None:
        workers.put_later(pool.item("c"), 3.0)
        workers.put_later(pool.item("a"), 1.0)
        workers.put_later(pool.item("b"), 1.0)
        workers.put_later(pool.item("now"), 0.0)
        workers.put(pool.item("first"))

    found = pool.run(use)
    assert {(0.0, "first"), (0.0, "now")} == set(found[:2])
    assert found[2:] == [(1.0, "a"), (1.0, "b"), (3.0, "c")], "in the order in which they are due"


def test_a_worker_that_raises_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool(1)

    def bug() -> None:
        raise RuntimeError("a bug")

    def use(workers: WorkerPool) -> None:
        workers.put(bug)
        workers.put(pool.item("after"))

    assert pool.run(use) == [(0.0, "after")]
    assert "unhandled exception in a worker" in caplog.text


def test_whether_items_wait_for_a_worker() -> None:
    pool = Pool(2)

    def use(workers: WorkerPool) -> None:
        for name in "abc":
            workers.put(pool.item(name, 10.0))
        workers.put_later(pool.item("later"), 50.0)
        for _ in range(3):
            pool.process.runtime.sleep(4.0)
            pool.backlogs.append(workers.has_backlog)

    pool.run(use)
    assert pool.backlogs == [True, True, False]


@pytest.mark.parametrize(("timeout_s", "takes_s"), [(5.0, 100.0), (5.0, 3.0), (2.0, 3.0)])
def test_the_end_waits_for_items_that_run_and_drops_the_others(timeout_s: float, takes_s: float) -> None:  # fmt: skip
    pool = Pool(2)

    def use(workers: WorkerPool) -> None:
        for name in "abcde":
            workers.put(pool.item(name, takes_s))
        workers.put_later(pool.item("later"), 1.5)
        pool.process.runtime.sleep(1.0)
        workers.stop(timeout_s)
        pool.stopped_at = pool.kernel.now

    began = pool.run(use, until_s=90.0)
    assert len(began) == 2, "no other item begins"
    assert pool.stopped_at == 1.0 + min(timeout_s, takes_s - 1.0)
    assert len(pool.alive) == (2 if takes_s > 90.0 else 0)


def test_a_limited_rate() -> None:
    """Against each use in turn: no second, and no other window, has more than the rate and the burst allow."""
    dice = random.Random(3)
    for per_s, burst in ((1.0, 1), (5.0, 10), (50.0, 50), (0.5, 3)):
        clock = StillClock()
        limiter = RateLimiter(per_s, burst, clock)
        clock.now = 1000.0
        used: list[float] = []
        for _ in range(200):
            clock.now += dice.choice((0.0, 0.0, dice.random() / per_s, 3.0 * dice.random()))
            wait_s = limiter.wait_s()
            assert wait_s >= 0.0
            used.append(clock.now + wait_s)
        tokens, last = float(burst), used[0]
        for at in sorted(used):
            tokens = min(float(burst), tokens + (at - last) * per_s) - 1.0
            last = at
            assert tokens > -1e-6, (per_s, burst, at)


def test_a_rate_that_is_not_reached_costs_no_time() -> None:
    clock = StillClock()
    limiter = RateLimiter(2.0, 4, clock)
    clock.now = 50.0
    assert [limiter.wait_s() for _ in range(7)] == [0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 1.5]
    clock.now += 1.0
    assert limiter.wait_s() == 1.0
    clock.now += 100.0
    assert [limiter.wait_s() for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
