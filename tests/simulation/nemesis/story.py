"""One seeded story: two replicas of the scheduler, four nodes, users, and a nemesis for a while. Then it stops, and
everything must come to its end.

    python -m tests.simulation.nemesis.story SEED     # tells it, and what is broken
"""

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from central.controllers.composite import new_scheduler
from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.model.decisions import Bind, Decision
from central.server.leader_election import LeaderElection
from central.server.leader_parts import LeaderParts, Ready
from central.server.loop import Loop
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.simulation.nemesis.model import History
from tests.simulation.nemesis.virtual_api import Backup, Link, VirtualApi, VirtualClient, Weather
from tests.simulation.nemesis.virtual_nodes import Nodes, User
from tests.simulation.nemesis.virtual_runtime import Kernel, Process, one_processor
from tests.simulation.reason_checker import assert_reasons_true

LEASE_S = 15
TROUBLE_S = 240.0  # for so long the nemesis is at work
HEAL_S = 900.0  # after so long everything must have ended
SLICE_S = 5.0
WORKERS = 4

log = logging.getLogger(__name__)


class Bugs(logging.Handler):
    """Collects what the program itself calls a bug, and what its audit had to correct."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        self.corrected: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info or "bug" in text:
            text += f": {record.exc_info[1]!r}" if record.exc_info else ""
            self.found.append(f"{record.name}: {text}")
        elif "was assumed and is not so" in text:
            self.corrected.append(text)


class OpenGate:
    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        go()


class Replica:
    """A scheduler process, which is started again when it has ended."""

    def __init__(self, story: "Story", name: str) -> None:
        self.story, self.name = story, name
        self.link = Link()
        self.loop: Loop | None = None
        self.parts: LeaderParts | None = None
        self.starts = 0
        self.process: Process
        self.start()

    @property
    def leads(self) -> bool:
        return self.loop is not None

    def start(self) -> None:
        self.starts += 1
        self.process = self.story.kernel.process(f"{self.name}.{self.starts}")
        self.process.runtime.thread(self._main, "main").start()

    def kill(self, for_s: float) -> None:
        self.process.kill()
        self._over()
        self.story.kernel.at(self.story.kernel.now + for_s, self.start)

    def _over(self) -> None:
        self.story.nodes.listeners.pop(self.loop, None)
        self.loop = self.parts = None

    def _main(self) -> None:
        """As central.server.app.run, without gRPC: agents put their reports into the inbox."""
        process, runtime = self.process, self.process.runtime
        client = VirtualClient(self.story.api, process, self.link)
        election = LeaderElection(
            client, "lockstep-system", "", elect=True, lease_s=LEASE_S, runtime=runtime
        )
        if not election.acquire(lambda seconds: runtime.flag().wait(seconds)):
            return
        scheduler = new_scheduler(factories.LEVELS)
        ready = Ready(scheduler, 5.0, runtime)

        def on_cycle(facts: object, decisions: object, took_s: float) -> None:
            check_invariants(scheduler)
            assert_reasons_true(scheduler)

        self.loop = loop = Loop(scheduler, ready=ready, runtime=runtime, on_cycle=on_cycle)
        self.story.nodes.listeners[loop] = loop.put
        self.parts = parts = LeaderParts(
            client,
            loop,
            api_kinds.kinds(Decoder(("lockstep",), factories.LEVELS)),
            OpenGate(),
            observe=loop.put,
            may_act=election.may_act,
            workers=WORKERS,
            runtime=runtime,
        )
        ready.listed = parts.listed
        election.start(loop.stop)
        loop.run(self._counted(parts), lambda plans: None)
        parts.stop()
        election.release()
        self._over()
        self.story.kernel.at(self.story.kernel.now + 1.0, self.start)

    def _counted(self, parts: LeaderParts) -> Callable[[object], None]:
        def submit(decisions: list[Decision]) -> None:
            self.story.told.update(type(each).__name__ for each in decisions)
            parts.executor.submit(decisions)
            if self.story.armed and any(isinstance(each, Bind) for each in decisions):
                self.story.armed()
                self.story.armed = None

        return submit  # type: ignore[return-value]


@dataclass(frozen=True)
class Deed:
    """What the nemesis does, and how to name it."""

    name: str
    do: Callable[["Story"], None]


class Story:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kernel = Kernel(seed)
        self.dice = random.Random(seed * 7919 + 1)
        self.told: Counter[str] = Counter()
        self.armed: Callable[[], None] | None = None  # done at the next binding
        self.deeds: list[str] = []
        queues: dict[str, str] = {}
        self.history = History(self.kernel, queues, {"small": 12})
        self.api = VirtualApi(self.kernel, self.history.on_event)
        self.nodes = Nodes(self.kernel, self.api)
        self.user = User(self.kernel, self.api)
        self.backups: list[Backup] = []
        self._set_up(queues)
        self.replicas = [Replica(self, "a"), Replica(self, "b")]
        self.bugs = Bugs()

    def _set_up(self, queues: dict[str, str]) -> None:
        self.user.call("POST", "/api/v1/namespaces", {"metadata": {"name": "lockstep-system"}})
        self.nodes.register()
        self.user.queue("small", 12)
        self.user.queue("default", 1000)
        for number in range(self.dice.randint(10, 24)):
            name, pods = f"g{number}", self.dice.choice((1, 2, 3, 4))
            queue = self.dice.choice(("", "small"))
            gpus = self.dice.choice((1, 2, 4) if queue else (1, 4, 8))
            if queue and pods * gpus > 12:
                gpus = 1
            queues[name] = queue
            self.user.gang(name, pods, gpus, self.dice.randint(10, 60), queue)
            self.user.arrives[name] = self.dice.uniform(0.0, TROUBLE_S)
        for number in range(self.dice.randint(2, 6)):
            self.user.job(f"j{number}", self.dice.randint(1, 3), 2, self.dice.randint(10, 40))
            self.user.arrives[f"j{number}"] = self.dice.uniform(0.0, TROUBLE_S)
        self._start_outside()

    def _start_outside(self) -> None:
        """Whoever is not the scheduler."""
        for name, live in (("nodes", self.nodes.live), ("user", self.user.live)):
            process = self.kernel.process(name)
            process.runtime.thread(lambda live=live, it=process: live(it), name).start()  # type: ignore[misc]

    @property
    def trace(self) -> list[str]:
        """Every event of the API, with its time."""
        return self.history.trace

    # --- from beginning to end ---------------------------------------------------------

    def run(self) -> None:
        """Raises AssertionError with what is broken."""
        with one_processor(self.seed):
            self._run()

    def _run(self) -> None:
        root = logging.getLogger("central")
        root.addHandler(self.bugs)
        try:
            self._plan()
            self.kernel.run(TROUBLE_S)
            self._heal()
            while self.kernel.now < TROUBLE_S + HEAL_S and self._unfinished():
                self.kernel.run(self.kernel.now + SLICE_S)
            self.check()
        finally:
            root.removeHandler(self.bugs)
            self.kernel.end()

    def check(self) -> None:
        wrong = [*self.history.broken, *self._unfinished(), *self.bugs.found]
        if not self.history.restores:  # then an answer was lost
            wrong += self.bugs.corrected
        told = f"seed {self.seed} at {self.kernel.now:.0f} s: " + "; ".join(self.deeds)
        assert not wrong, "\n".join([told, *wrong])

    def _unfinished(self) -> list[str]:
        found = self.user.unfinished()
        leaders = [replica for replica in self.replicas if replica.leads]
        if len(leaders) != 1:
            return [*found, f"{len(leaders)} replicas lead"]
        parts = leaders[0].parts
        if parts is not None:
            if count := parts.executor.tickets.open_count():
                found.append(f"{count} decisions have no answer")
            if parts.audit.old:
                found.append(f"{parts.audit.old} old assumptions")
        return found

    # --- the nemesis -------------------------------------------------------------------

    def _plan(self) -> None:
        at = self.dice.uniform(1.0, 15.0)
        while at < TROUBLE_S - 10:
            deed = self.dice.choice(DEEDS)
            self.kernel.at(at, lambda deed=deed: self._act(deed))  # type: ignore[misc]
            at += self.dice.uniform(3.0, 30.0)
        self.kernel.at(self.dice.uniform(10.0, 60.0), self._take_backup)

    def _take_backup(self) -> None:
        self.backups.append(self.api.backup())
        self.kernel.at(self.kernel.now + self.dice.uniform(10.0, 40.0), self._take_backup)

    def _act(self, deed: Deed) -> None:
        self.deeds.append(f"{self.kernel.now:.0f} s {deed.name}")
        deed.do(self)

    def _heal(self) -> None:
        self.api.down = self.api.full = False
        for replica in self.replicas:
            replica.link.cut = replica.link.stalled = replica.link.unleased = False
            replica.link.weather = Weather()

    def later(self, seconds: tuple[float, float], do: Callable[[], None]) -> float:
        wait_s = self.dice.uniform(*seconds)
        self.kernel.at(min(self.kernel.now + wait_s, TROUBLE_S - 1), do)
        return wait_s

    def leader(self) -> Replica:
        return next((each for each in self.replicas if each.leads), self.replicas[0])

    def any(self) -> Replica:
        return self.leader() if self.dice.random() < 0.7 else self.dice.choice(self.replicas)


def _kill(story: Story) -> None:
    replica = story.any()
    if not replica.process.killed:
        replica.kill(story.dice.uniform(1.0, 20.0))


def _pause(story: Story) -> None:
    seconds = story.dice.choice((story.dice.uniform(1.0, 40.0), story.dice.uniform(9.0, 14.0)))
    story.any().process.pause(seconds)
    story.history.excuse(seconds + 90.0)


def _pause_at_binding(story: Story) -> None:
    """With bindings in the executor's queues, for so long that the lease must be renewed first."""

    def pause() -> None:
        seconds = story.dice.uniform(9.5, 14.5)
        story.deeds.append(f"{story.kernel.now:.0f} s for {seconds:.1f} s")
        story.leader().process.pause(seconds)

    story.armed = pause


def _kill_at_binding(story: Story) -> None:
    story.armed = lambda: story.kernel.at(story.kernel.now, lambda: _kill_now(story))


def _kill_now(story: Story) -> None:
    if not (replica := story.leader()).process.killed:
        replica.kill(story.dice.uniform(1.0, 20.0))


def _cut_at_binding(story: Story) -> None:
    story.armed = lambda: _cut(story)


def _cut(story: Story) -> None:
    link = story.any().link
    link.cut = True
    story.later((1.0, 60.0), lambda: setattr(link, "cut", False))


def _stall(story: Story) -> None:
    link = story.any().link
    link.stalled = True
    story.later((10.0, 200.0), lambda: setattr(link, "stalled", False))


def _unlease(story: Story) -> None:
    """The lease is not renewed for about as long as it takes to lose it."""
    link = story.leader().link
    link.unleased = True
    story.later((6.0, 14.0), lambda: setattr(link, "unleased", False))


def _weather(**faults: float) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        link = story.any().link
        link.weather = Weather(**faults)
        if "late" in faults:
            story.history.excuse(TROUBLE_S)
        story.later((5.0, 60.0), lambda: setattr(link, "weather", Weather()))

    return change


def _restore(*, bump: int) -> Callable[[Story], None]:
    def restore(story: Story) -> None:
        # Revisions that come again soon are not to be told apart from the old ones.
        newest = story.api.service.store.version - (0 if bump else 100)
        backups = [each for each in story.backups if each.version <= newest]
        if not backups or story.api.down:
            return
        backup = backups[-1]
        story.api.down = True

        def up() -> None:
            story.api.restore(backup, bump=bump)
            story.backups = [each for each in story.backups if each.version <= backup.version]
            story.history.restored()
            story.api.down = False

        story.later((1.0, 20.0), up)

    return restore


def _full(story: Story) -> None:
    story.api.full = True
    story.later((5.0, 60.0), lambda: setattr(story.api, "full", False))


def _down(story: Story) -> None:
    if not story.api.down:
        story.api.down = True
        story.later((1.0, 30.0), lambda: setattr(story.api, "down", False))


def _lie(story: Story) -> None:
    story.nodes.lying_until = story.kernel.now + story.dice.uniform(5.0, 60.0)


def _forget(story: Story) -> None:
    for plural in ("pods", "nodes"):
        story.api.forget_history(("", plural))


DEEDS = (
    Deed("kill", _kill),
    Deed("kill", _kill),
    Deed("pause", _pause),
    Deed("pause", _pause),
    Deed("pause at the next binding", _pause_at_binding),
    Deed("pause at the next binding", _pause_at_binding),
    Deed("kill at the next binding", _kill_at_binding),
    Deed("cut at the next binding", _cut_at_binding),
    Deed("cut", _cut),
    Deed("stalled watches", _stall),
    Deed("no lease", _unlease),
    Deed("no lease", _unlease),
    Deed("lost requests", _weather(lost_request=0.3)),
    Deed("lost answers", _weather(lost_answer=0.4)),
    Deed("doubled requests", _weather(doubled=0.5)),
    Deed("late requests", _weather(late=0.3)),
    Deed("errors", _weather(error=0.4)),
    Deed("errors after success", _weather(error_after=0.5)),
    Deed("rubbish", _weather(rubbish=0.4)),
    Deed("slow", _weather(slow_s=5.0)),
    Deed("late watches", _weather(watch_lag_s=120.0)),
    Deed("broken watches", _weather(watch_breaks=0.3)),
    Deed(
        "all at once",
        _weather(lost_request=0.1, lost_answer=0.1, doubled=0.1, error=0.1, rubbish=0.1),
    ),
    Deed("restored etcd, revisions go on", _restore(bump=1_000_000)),
    Deed("restored etcd, revisions go back", _restore(bump=0)),
    Deed("full disk", _full),
    Deed("API server down", _down),
    Deed("agents lie", _lie),
    Deed("forgotten history", _forget),
)


def main() -> None:
    story = Story(int(sys.argv[1]))
    logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")
    try:
        story.run()
    finally:
        print("\n".join(story.deeds))
        print(dict(story.history.events), dict(story.told))
        print("restarts", [replica.starts for replica in story.replicas], "at", story.kernel.now)
        print("ran", story.nodes.ran, "rejected", story.nodes.rejected, "lies", story.nodes.lies)
        print("steps", story.kernel.steps, "corrected", story.bugs.corrected)


if __name__ == "__main__":
    main()
