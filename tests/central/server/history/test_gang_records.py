"""The record of a gang: what happened to it, when and why, and what it used."""

from typing import Any

import orjson

from central.controllers.composite import new_scheduler
from central.model.decisions import Decision, Delete, EmitWarning
from central.model.event_objects import about, build_event
from central.model.event_reasons import SHRANK
from central.model.facts import BindDone, Fact, GangGone, PodGone, QueueSeen
from central.model.resources import GPU_UNITS
from central.scheduler.cycle import schedule_once
from central.server.gpu_uses import GpuUses
from central.server.history.gang_record import EVENTS_MOST, GangRecord
from central.server.history.gang_records import GangRecords, KeptRecord
from central.server.stats.sliced_question import SlicedQuestion, Steps
from protos.names import GPU
from protos.topology import GpuUse
from tests.central import factories

Json = dict[str, Any]
T0 = 1000.0


class Life:
    """A scheduler with one node of 8 GPUs, and the records beside it."""

    def __init__(self, known: tuple[Json, ...] = (), *facts: Fact, now: float = T0) -> None:
        """facts: what is there in its first cycle, beside the node."""
        self.scheduler = new_scheduler(factories.LEVELS)
        self.uses = GpuUses()
        self.activities: dict[tuple[str, str], dict[str, float]] = {}
        self.records = GangRecords(self.scheduler, self.uses, self.activities)
        self.records.adopt(known)
        self.tell(now, factories.node("a"), factories.report("a"), *facts)

    def tell(self, now: float, *facts: Fact) -> list[Any]:
        decisions = schedule_once(self.scheduler, facts, now)
        self.records.observe(facts, decisions)
        return decisions

    def record(self, name: str) -> Json:
        found = self.records.find("ns", name)
        assert found is not None
        return found if isinstance(found, dict) else orjson.loads(found)


def story(record: Json) -> list[tuple[float, str]]:
    return [(event["at"] - T0, event["what"]) for event in record["events"]]


def run(life: Life, name: str, now: float, *, gpus: int = 4, **other: Any) -> None:
    """A gang of two pods that is bound and runs one and two seconds later."""
    pods = [factories.pod(f"{name}-{at}", gpus, name, **other) for at in range(2)]
    life.tell(now, factories.gang(name, 2, created=now - 1, owner=f"job/{name}"), *pods)
    life.tell(now + 1, *(BindDone(pod.uid, "a") for pod in pods))
    ran = [
        factories.pod(f"{name}-{at}", gpus, name, node="a", phase="Running", **other)
        for at in range(2)
    ]
    life.tell(now + 2, *ran)


def end(life: Life, name: str, now: float, phase: str, gpus: int = 4) -> None:
    pods = [factories.pod(f"{name}-{at}", gpus, name, node="a", phase=phase) for at in range(2)]
    life.tell(now, *pods)
    gone = [PodGone(pod.uid) for pod in pods]
    life.tell(now + 1, *gone, GangGone("ns", name))


def changed(life: Life) -> list[KeptRecord]:
    found: list[KeptRecord] = answered(life.records.steps, life)
    return found


def listed(life: Life) -> list[Json]:
    """Summaries of all gangs."""
    found: list[Json] = answered(life.records.listed, life)
    return found


def answered(steps: Steps, life: Life) -> Any:
    question = SlicedQuestion(steps)
    while not question(life.scheduler):
        pass
    return question.answer


def names(records: list[KeptRecord]) -> list[str]:
    return [each.summary["gang"] for each in records]


def test_a_gang_that_runs_and_completes() -> None:
    life = Life()
    run(life, "train", T0 + 10, user="jane")
    record = life.record("train")
    assert story(record) == [(9, "created"), (10, "placed"), (12, "bound"), (12, "running")]
    assert record["events"][1]["text"] == "2 pods on a"
    assert (record["name"], record["gang"], record["user"]) == ("job/train", "train", "jane")
    assert (record["stage"], record["started"], record["ended"]) == ("running", T0 + 12, None)
    end(life, "train", T0 + 110, "Succeeded")
    record = life.record("job/train")
    assert story(record)[-1] == (110, "completed")
    assert (record["stage"], record["ended"]) == ("completed", T0 + 110)
    assert record["gpu_seconds"]["allocated"] == 8 * 100
    assert record["sizes"] == [[T0 + 10, 2, 8.0], [T0 + 110, 0, 0.0]]
    assert record["nodes"] == ["a"]
    [row] = listed(life)
    assert (row["name"], row["stage"], row["gpus"]) == ("job/train", "completed", 8.0)


def test_what_a_job_used_its_gpus_for_is_kept_with_its_record() -> None:
    life = Life()
    run(life, "train", T0 + 10)
    run(life, "plain", T0 + 12, gpus=0)
    life.activities["ns", "train"].update(training=90.0, saving=10.0)
    kept = life.record("train")
    assert kept["activities"] == {"training": 90.0, "saving": 10.0}
    gang = factories.gang("train", 2, created=T0 + 9, owner="job/train")
    pods = [factories.pod(f"train-{at}", 4, "train", node="a", phase="Running") for at in range(2)]
    successor = Life((kept,), gang, *pods, now=T0 + 60)
    successor.activities["ns", "train"].update(training=190.0)
    end(successor, "train", T0 + 110, "Succeeded")
    assert successor.activities == {}, "it is gone"
    assert successor.record("train")["activities"] == {"training": 190.0, "saving": 10.0}
    assert listed(successor)[0]["activities"] == {"training": 190.0, "saving": 10.0}
    assert life.record("plain")["activities"] == {}
    del kept["activities"]
    assert GangRecord.read(kept).activities == {}, "of an earlier version"


def test_a_gang_that_waits_is_preempted_and_deleted() -> None:
    life = Life()
    life.tell(T0 + 1, QueueSeen("default", uid="d"))
    run(life, "low", T0 + 10, priority=1)
    pods = [factories.pod(f"high-{at}", 4, "high", priority=9) for at in range(2)]
    life.tell(T0 + 100, factories.gang("high", 2, created=T0 + 100), *pods)
    low = life.record("low")
    [event] = [each for each in low["events"] if each["what"] == "evicted"]
    assert event["cause"] == "preemption"
    assert event["text"].startswith("2 pods: ")
    assert "high" in event["text"]
    assert low["gpu_seconds"] == {
        "allocated": 8 * 90.0,
        "lost": 8 * 90.0,
        "busy": 0.0,
        "rated": 0.0,
    }
    life.tell(T0 + 130, *(PodGone(f"uid-low-{at}") for at in range(2)))
    assert story(life.record("low"))[-1] == (130, "waits again")
    high = life.record("high")
    assert [(wait["cause"], wait["since"] - T0, wait["until"] - T0) for wait in high["waits"]] == [
        ("place-reserved", 100, 130)
    ]
    assert high["waited"] == {"place-reserved": 30.0}
    life.tell(T0 + 140, GangGone("ns", "low"))
    assert life.record("low")["stage"] == "deleted"


def test_sizes_over_time() -> None:
    life = Life()
    run(life, "grows", T0 + 10, gpus=1)
    life.tell(T0 + 20, factories.pod("grows-2", 1, "grows"))
    life.tell(T0 + 50, PodGone("uid-grows-2"))
    record = life.record("grows")
    assert [each["text"] for each in record["events"] if each["what"] in ("grew", "shrank")] == [
        "2 to 3 pods",
        "3 to 2 pods",
    ]
    assert [size[1] for size in record["sizes"]] == [2, 3, 2]
    smaller = factories.pod("grows-1", 0, "grows", node="a", phase="Running")
    life.tell(T0 + 60, smaller)
    assert life.record("grows")["sizes"][-1] == [T0 + 60, 2, 1.0]
    assert life.record("grows")["events"] == record["events"], "it has as many pods"


def test_events_of_its_pods_and_its_job_are_told_with_their_words() -> None:
    life = Life()
    run(life, "train-j", T0 + 10, gpus=1)
    run(life, "other", T0 + 10, gpus=1)
    why = "GPU 3 of node a, held by train-j-0, is unhealthy: XID 94"
    job = about("batch.volcano.sh/v1alpha1", "Job", "ns", "train", "j")
    shrank = build_event(job, SHRANK, "task w: 3 to 2 members; for ns/high", T0, of_now=True)
    told: list[Decision] = [
        EmitWarning("ns", "train-j", "", "uid-train-j-0", "train-j-0", why),
        shrank,
    ]
    life.records.observe([], told)
    life.tell(T0 + 20, factories.pod("train-j-2", 1, "train-j"))
    record = life.record("train-j")
    assert [(each["what"], each["text"]) for each in record["events"][4:]] == [
        ("GPU unhealthy", why),
        ("shrank", "task w: 3 to 2 members; for ns/high"),
    ], "its Job tells of its sizes: the number of its pods does not"
    assert len(record["sizes"]) == 2
    assert [what for _, what in story(life.record("other"))][4:] == []


def test_pods_that_their_controller_deletes_are_not_evicted() -> None:
    life = Life()
    run(life, "train", T0 + 10)
    life.records.observe([], [Delete("Pod", "ns", "train-0", "uid-train-0", "left the Job")])
    event = life.record("train")["events"][-1]
    assert (event["what"], event["text"]) == ("pods deleted", "1 pod: left the Job")


def test_a_minimum_that_grows_while_the_gang_starts_is_no_new_wait() -> None:
    life = Life()
    group = factories.gang("train", 2, created=T0 + 1, owner="job/train")
    life.tell(T0 + 1, group, *(factories.pod(f"train-{at}", 1, "train") for at in range(2)))
    life.tell(T0 + 2, factories.gang("train", 3, created=T0 + 1, owner="job/train"))
    life.tell(T0 + 3, factories.pod("train-2", 1, "train"))
    assert [what for _, what in story(life.record("train"))] == ["created", "placed"]
    life.tell(T0 + 4, *(BindDone(f"uid-train-{at}", "a") for at in range(3)))
    life.tell(T0 + 5, *(factories.pod(f"train-{at}", 1, "train", node="a") for at in range(3)))
    life.tell(T0 + 6, factories.pod("train-3", 1, "train"))
    assert [what for _, what in story(life.record("train"))] == ["created", "placed", "bound"]


def test_a_gang_whose_pods_come_one_by_one_does_not_wait_again() -> None:
    life = Life()
    life.tell(T0 + 1, factories.gang("train", 2, created=T0 + 1, owner="job/train"))
    life.scheduler.state.gangs["ns", "train", True].published.override = ("Inqueue", "admitted")
    life.tell(T0 + 2)
    life.scheduler.state.gangs["ns", "train", True].published.override = None
    for at in range(2):
        life.tell(T0 + 3 + at, factories.pod(f"train-{at}", 4, "train"))
    assert story(life.record("train")) == [(1, "created"), (1, "admitted"), (4, "placed")]


def test_the_pods_of_a_suspended_job_have_not_failed() -> None:
    life = Life()
    run(life, "train", T0 + 10)
    life.scheduler.state.gangs["ns", "train", True].published.suspended = True
    life.tell(
        T0 + 20,
        *(factories.pod(f"train-{at}", 4, "train", node="a", phase="Failed") for at in range(2)),
    )
    record = life.record("train")
    assert (record["stage"], record["ended"]) == ("suspended", None)


def test_a_gang_whose_members_end_one_by_one_completes_and_does_not_shrink() -> None:
    life = Life()
    run(life, "train", T0 + 10)
    ends = factories.pod("train-0", 4, "train", node="a", phase="Succeeded")
    life.tell(T0 + 20, ends)
    end(life, "train", T0 + 21, "Succeeded")
    record = life.record("train")
    assert [what for _, what in story(record)][-2:] == ["running", "completed"]
    assert [size[1] for size in record["sizes"]] == [2, 1, 0]


def test_a_record_goes_on_in_the_next_scheduler() -> None:
    life = Life()
    run(life, "train", T0 + 10)
    kept = life.record("train")
    pods = [factories.pod(f"train-{at}", 4, "train", node="a", phase="Running") for at in range(2)]
    gang = factories.gang("train", 2, created=T0 + 9, owner="job/train")
    after = Life((kept,), gang, *pods, now=T0 + 60)
    record = after.record("train")
    assert record["uid"] == kept["uid"]
    assert story(record) == story(kept)
    assert GangRecord.read(kept).shown(kept["counted"]) == kept


def test_records_are_bounded() -> None:
    record = GangRecord({"uid": "u"})
    for at in range(5 * EVENTS_MOST):
        record.note(float(at), "grew")
        record.resize(float(at), at, 1.0)
        record.wait(float(at), f"cause {at % 2}", "why")
    shown = record.shown(9.0)
    assert len(shown["events"]) == EVENTS_MOST
    assert shown["events_dropped"] == 4 * EVENTS_MOST
    assert (shown["events"][0]["at"], shown["events"][-1]["at"]) == (0.0, 5.0 * EVENTS_MOST - 1)
    assert len(shown["sizes"]) <= 500
    assert len(shown["waits"]) <= 200


def test_changed_records_are_given_once() -> None:
    life = Life()
    run(life, "train", T0 + 10)

    assert names(changed(life)) == ["train"]
    assert names(changed(life)) == []
    end(life, "train", T0 + 50, "Failed")
    assert names(changed(life)) == ["train"]
    assert life.record("train")["stage"] == "failed"
    assert GPU not in life.record("train")


def test_a_gang_that_is_deleted_while_no_scheduler_runs_has_ended() -> None:
    life = Life()
    run(life, "train", T0 + 10)
    [known] = [orjson.loads(each.body) for each in changed(life)]
    after = Life((known,), now=T0 + 100)
    [row] = listed(after)
    assert (row["stage"], row["ended"], row["gpu_seconds"]["allocated"]) == (
        "deleted",
        T0 + 100,
        8 * 2,
    )
    assert after.record("train")["sizes"][-1] == [T0 + 12, 0, 0.0]
    assert [each.summary["stage"] for each in changed(after)] == ["deleted"]


def test_a_record_says_how_busy_its_gpus_are() -> None:
    life = Life()
    uses, records = life.uses, life.records
    run(life, "sweep", T0 + 10)
    pod = next(each for each in life.scheduler.state.pods.values() if each.node)
    found = records.find("ns", "sweep")
    assert isinstance(found, dict)
    assert found["gpu_use"] is None
    uses.record(pod.node, [GpuUse("ns", pod.seen.name, "c", 0.5, 7)], 0.0)
    found = records.find("ns", "sweep")
    assert isinstance(found, dict)
    assert found["gpu_use"] == {"utilization": 0.5, "memory": 7, "idle_s": None}


def test_a_record_adds_up_how_busy_its_gpus_were() -> None:
    """Of two pods with four GPUs each, one of which tells its use."""
    life = Life()
    run(life, "sweep", T0 + 10)
    life.uses.record("a", [GpuUse("ns", "sweep-0", "c", 0.5, 7)], 0.0)
    answer = answered(lambda scheduler: life.records.add_use(scheduler, 30.0), life)
    units = 4 * GPU_UNITS * 30_000
    assert answer == [(units / 2, units, "uid-sweep-0")]
    life.uses.record("a", [GpuUse("ns", "sweep-0", "c", 1.0, 7)], 0.0)
    answered(lambda scheduler: life.records.add_use(scheduler, 10.0), life)
    spent = life.record("sweep")["gpu_seconds"]
    assert (spent["busy"], spent["rated"]) == (4 * (15.0 + 10.0), 4 * 40.0)
    end(life, "sweep", T0 + 100, "Succeeded")
    assert GangRecord.read(life.record("sweep")).busy == spent["busy"]
