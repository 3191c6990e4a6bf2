"""PodGroups for gangs of controllers (--pod-groups-for-controllers), in rounds: what the scheduler knows is compared
with what was written. The leader alone does so, and never in the scheduling loop's thread. Nobody reads them here:
they are for tools that look for PodGroups.

mirror = PodGroupMirror(client, loop, may_act=election.may_act)
mirror.start()
mirror.stop()

Design: docs/design/gangs.md
"""

import logging
from collections.abc import Callable, Generator

from central.kube.resource_paths import BY_GROUP_KIND
from central.kube.transport.http_client import Client
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.write.pod_requests import Refused
from central.kube.write.podgroup_writer import MirroredGang, PodGroupWriter
from central.kube.write.retrying import Retry
from central.model import controller_gangs
from central.scheduler import pending_cause
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status import gang_status
from central.server.rounds import Rounds
from central.server.stats.sliced_question import QuestionLoop, ask_in_slices
from central.server.throttled_log import ThrottledLog

log = logging.getLogger(__name__)

EVERY_S = 3.0
WRITES_MOST = 300  # in one round; the others follow in the next ones
AGAIN_S = 600.0  # after which a PodGroup is written again: somebody may have deleted it
GANGS_AT_ONCE = 50  # gangs between two places where the loop may go on
_OWNERS = {  # controllers of pods whose API version is known
    path.kind.lower(): path
    for path in (
        BY_GROUP_KIND[each]
        for each in (("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("batch", "Job"))
    )
}


class PodGroupMirror(Rounds):
    def __init__(
        self,
        client: Client,
        loop: QuestionLoop,
        *,
        may_act: Callable[[], bool],
        runtime: Runtime = RUNTIME,
    ) -> None:
        self._writer, self._loop, self._may_act = PodGroupWriter(client), loop, may_act
        self._runtime = runtime
        self._written: dict[GangKey, tuple[float, MirroredGang]] = {}
        self._last: GangKey = ("", "", False)
        self._quiet = ThrottledLog(log)
        super().__init__("podgroup-mirror", every_s=EVERY_S, runtime=runtime)

    def check(self) -> int:
        """One round; returns the number of PodGroups that it tried to write. Raises TimeoutError."""
        gangs = ask_in_slices(self._loop, _read_gangs, clock=self._runtime.monotonic)
        for key in self._written.keys() - gangs.keys():
            del self._written[key]
        # Round about, so that writes that fail again and again leave their turn to the others.
        order = sorted(gangs, key=lambda key: (key <= self._last, key))
        done = 0
        for key in filter(lambda key: self._is_due(key, gangs[key]), order):
            if done >= WRITES_MOST or self.ending or not self._may_act():
                break
            done += 1
            self._last = key
            self._write(key, gangs[key])
        return done

    def _is_due(self, key: GangKey, gang: MirroredGang) -> bool:
        at, written = self._written.get(key, (0.0, None))
        return written != gang or self._runtime.monotonic() - at >= AGAIN_S

    def _write(self, key: GangKey, gang: MirroredGang) -> None:
        try:
            self._writer.write(gang)
            self._written[key] = self._runtime.monotonic(), gang
        except Retry as error:
            self._quiet.warning("retry", "could not write a PodGroup: %s; trying again", error.why)
        except Refused as error:
            self._written[key] = self._runtime.monotonic(), gang
            self._quiet.warning("refused", "the PodGroup of a controller stays out: %s", error)


def _read_gangs(scheduler: Scheduler) -> Generator[None, None, dict[GangKey, MirroredGang]]:
    """Reads the gangs in the loop's thread."""
    found: dict[GangKey, MirroredGang] = {}
    for number, key in enumerate(list(scheduler.state.gangs)):
        if number % GANGS_AT_ONCE == 0:
            yield
        gang = scheduler.state.gangs.get(key)
        mirrored = _mirrored(scheduler, gang) if gang is not None else None
        if mirrored is not None:
            found[key] = mirrored
    return found


def _mirrored(scheduler: Scheduler, gang: Gang) -> MirroredGang | None:
    """Returns the mirrored gang; None for a gang that no controller makes, and one whose controller's version is
    unknown."""
    if not controller_gangs.is_controllers(gang.name):
        return None
    state = scheduler.state
    for pod in gang.members.values():
        kind, _, name = pod.seen.owner_name.partition("/")
        if pod.seen.owner and (path := _OWNERS.get(kind)) is not None:
            counts = gang.counts
            return MirroredGang(
                gang.namespace,
                gang.name,
                (path.api_version, path.kind, name, pod.seen.owner),
                gang.minimum,
                gang.task_min,
                gang.queue_name,
                gang_status.phase(gang),
                state.public(gang_status.describe(state, gang), gang.namespace),
                pending_cause.cause_of(scheduler, gang),
                (counts.running, counts.succeeded, counts.failed),
            )
    return None
