"""Keeps the past use of queues (--usage-half-life) in a ConfigMap, each minute, and reads it when a leader begins.

store = UsageStore(client, loop, namespace, may_act=election.may_act)
store.restore()       # before the loop runs; at most a few seconds
store.start()
store.stop()

Design: docs/design/quotas.md
"""

import logging
from collections.abc import Callable, Generator

from central.kube.transport.http_client import Client
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.write import usage_map
from central.kube.write.retrying import Retry
from central.kube.write.usage_map import NotKept
from central.model.facts import PastUsageSeen, QueuePast
from central.scheduler.scheduler import Scheduler
from central.server.rounds import Rounds
from central.server.stats.sliced_question import FactLoop, ask_in_slices
from central.server.throttled_log import ThrottledLog

log = logging.getLogger(__name__)

EVERY_S = 60.0
READS, READ_APART_S = 5, 1.0
QUEUES_AT_ONCE = 100  # between two places where the loop may go on


class UsageStore(Rounds):
    def __init__(
        self,
        client: Client,
        loop: FactLoop,
        namespace: str,
        *,
        may_act: Callable[[], bool],
        runtime: Runtime = RUNTIME,
    ) -> None:
        self._client, self._loop, self._namespace = client, loop, namespace
        self._may_act, self._runtime = may_act, runtime
        self._quiet = ThrottledLog(log)
        self._is_empty = True  # what is written
        super().__init__("usage-store", every_s=EVERY_S, runtime=runtime)

    def restore(self) -> None:
        """Restores the usage. If that fails, the scheduler starts all the same, without the queues' past."""
        for number in range(READS):
            if number:
                self._runtime.sleep(READ_APART_S)
            try:
                found = usage_map.load(self._client, self._namespace)
            except Retry as error:
                why = error.why
                continue
            except NotKept as error:
                why = str(error)
                break
            if found is not None:
                self._loop.put(found)
                self._is_empty = not found.queues
                log.info("restored the past use of queues: %d", len(found.queues))
            return
        log.warning("the past use of queues could not be read, and begins again: %s", why)

    def check(self) -> None:
        if not self._may_act():
            return
        usage = ask_in_slices(self._loop, _read_usage, clock=self._runtime.monotonic)
        is_empty = not usage.queues
        if not self._may_act() or (is_empty and self._is_empty):
            return
        try:
            usage_map.save(self._client, self._namespace, usage)
            self._is_empty = is_empty
        except Retry as error:
            self._quiet.warning("retry", "could not keep the use of queues: %s", error.why)
        except NotKept as error:
            self._quiet.warning("refused", "the use of queues is not kept: %s", error)


def _read_usage(scheduler: Scheduler) -> Generator[None, None, PastUsageSeen]:
    """Reads the usage in the loop's thread."""
    found: list[QueuePast] = []
    queues = scheduler.queues
    for number, name in enumerate(list(queues.by_name) if queues.half_life_s else ()):
        if number % QUEUES_AT_ONCE == 0:
            yield
        if (queue := queues.by_name.get(name)) is not None:
            means = queue.past_usage.means(
                queues.now, queue.used, queue.uncharged, queues.half_life_s
            )
            if means:
                found.append(QueuePast(name, tuple(sorted(means.items()))))
    found.extend(queues.absent_past())
    return PastUsageSeen(queues.now, tuple(found))
