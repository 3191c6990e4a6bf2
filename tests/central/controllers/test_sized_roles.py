"""Sizes of JobSets, LeaderWorkerSets and RayClusters: whose pods vary, who leaves, and what is written."""

from copy import deepcopy
from typing import Any

import pytest

from central.controllers.composite import BatchControllers
from central.controllers.elastic_objects import NewSize
from central.model.facts.elastic_facts import BY_INDEX, BY_NAME
from central.model.json_types import Json
from central.scheduler.elastic.elastic_gang import NEED, Resize
from protos.names import RACK
from tests.central.controllers.role_controllers import READER, Played, noted, seen
from tests.central.kube import controller_fixtures as made


def jobset(replicas: int = 1, size: int = 2, **notes: str) -> Json:
    found = made.jobset()
    workers = found["spec"]["replicatedJobs"][1]
    workers |= {"replicas": replicas}
    workers["template"]["spec"] = {"parallelism": size, "completions": size}
    return noted(found, **{"min": "workers: 2", "max": "workers: 6", **notes})


def leaderworkerset(groups: int = 1, **notes: str) -> Json:
    found = made.leaderworkerset()
    found["spec"]["replicas"] = groups
    return noted(found, **{"min": "1", "max": "3", **notes})


def raycluster(gpus: int = 2, *, own: bool = False, **notes: str) -> Json:
    found = made.raycluster(**({"enableInTreeAutoscaling": True} if own else {}))
    groups = found["spec"]["workerGroupSpecs"]
    groups[0]["replicas"] = 2
    groups[1] |= {"replicas": gpus, "minReplicas": 2, "maxReplicas": 6}
    return noted(found, **{"min": "gpu: 2", "max": "gpu: 6", **notes})


# --- they start, grow, and give way ---------------------------------------------


@pytest.mark.long
def test_a_jobset_starts_with_its_least_size_and_grows_into_what_is_free() -> None:
    play = Played(jobset(size=6), racks=(3,))
    assert play.run(3).placed("workers") == [f"train-workers-0-{index}" for index in range(3)]
    assert play.placed("driver") == ["train-driver-0-0"]
    assert play.run(60).written[-1] == 3, "members without a seat are taken back"
    free = Played(jobset(), racks=(8,)).run()
    assert len(free.placed("workers")) == 6
    assert free.written == [6]


def test_of_a_jobset_the_highest_indexes_leave_for_a_gang() -> None:
    play = Played(jobset(size=6), racks=(6,)).run()
    play.other("r", 3)
    play.run()
    assert play.written == [3]
    assert play.others_placed("r") == 3
    assert play.placed("workers") == [f"train-workers-0-{index}" for index in range(3)]
    assert play.placed("driver")
    assert not play.evicted


def test_all_jobs_of_a_replicatedjob_change_by_as_many_pods() -> None:
    play = Played(jobset(replicas=2, size=4, min="2", max="4"), racks=(8,))
    del play.raw["spec"]["replicatedJobs"][0]
    play = Played(play.raw, racks=(8,)).run()
    assert len(play.placed("workers")) == 8
    play.other("r", 1)
    play.run()
    assert play.written == [3]
    left = [f"train-workers-{job}-{index}" for job in range(2) for index in range(3)]
    assert play.placed("workers") == sorted(left)
    assert play.others_placed("r") == 1


def test_the_driver_of_a_jobset_is_never_surplus() -> None:
    play = Played(jobset(size=2), racks=(2,)).run()
    play.other("r", 1)
    play.run()
    assert play.written == []
    assert len(play.placed("workers")) == 2
    assert play.others_placed("r") == 0


def test_groups_of_a_leaderworkerset_come_and_go_whole() -> None:
    play = Played(leaderworkerset(), racks=(5,)).run()
    assert play.written == [2], "five nodes hold two groups of two"
    play.other("r", 2)
    play.run()
    assert play.written == [2, 1], "one free node and one that is given do for the gang"
    assert play.placed() == ["serve-0", "serve-0-1"]
    assert play.others_placed("r") == 2


def test_each_group_is_in_the_rack_that_it_requires() -> None:
    raw = leaderworkerset(3, min="3")
    raw["metadata"]["annotations"]["lockstep.dev/topology-required"] = RACK
    play = Played(raw, racks=(3, 3, 3)).run()
    assert len(play.placed()) == 6
    for replica in range(3):
        pods = [play.pods[f"serve-{replica}"], play.pods[f"serve-{replica}-1"]]
        assert len({pod["spec"]["nodeName"][:2] for pod in pods}) == 1
    apart = Played(raw, racks=(1, 1, 1, 1, 1, 1)).run()
    assert apart.placed() == []


def test_a_leaderworkerset_that_becomes_elastic_while_it_runs() -> None:
    plain = leaderworkerset(2)
    notes = {
        key: plain["metadata"]["annotations"].pop(key)
        for key in list(plain["metadata"]["annotations"])
    }
    play = Played(plain, racks=(6,)).run()
    keys = {key[1] for key in play.scheduler.state.gangs}
    assert keys == {"leaderworkerset/serve/0", "leaderworkerset/serve/1"}
    play.raw["metadata"]["annotations"] |= notes
    play.sync()
    play.run()
    assert {key[1] for key in play.scheduler.state.gangs} == {"leaderworkerset/serve"}
    assert play.written == [3]
    play.raw["metadata"]["annotations"].clear()
    play.sync()
    play.run()
    keys = {key[1] for key in play.scheduler.state.gangs}
    assert keys == {f"leaderworkerset/serve/{index}" for index in range(3)}
    assert len(play.placed()) == 6
    assert not play.evicted


def test_workers_of_a_ray_cluster_leave_by_name() -> None:
    play = Played(raycluster(6), racks=(2, 4)).run()
    play.other("r", 2)
    play.run()
    assert play.written == [4]
    [asked] = play.sizes
    assert (asked.role, asked.place, asked.ceiling) == ("gpu", 1, False)
    assert len(asked.leaving) == 2
    assert len(play.placed("-gpu-")) == 4
    assert play.others_placed("r") == 2
    assert len(play.placed("-cpu-")) == 2


def test_a_ray_cluster_grows_and_names_nobody() -> None:
    play = Played(raycluster(), racks=(5,)).run()
    assert [(each.size, each.leaving) for each in play.sizes] == [(5, ())]
    assert len(play.placed("-gpu-")) == 5


# --- Ray's own autoscaler -------------------------------------------------------


@pytest.mark.long
def test_rays_own_autoscaler_decides_up_to_what_it_is_given() -> None:
    raw = raycluster(2, own=True)
    raw["spec"]["workerGroupSpecs"][1]["maxReplicas"] = 2
    play = Played(raw, racks=(5,)).run()
    assert play.written == [5], "it may have what is free"
    assert len(play.placed("-gpu-")) == 2, "and does not want it yet"
    group = play.raw["spec"]["workerGroupSpecs"][1]
    assert (group["replicas"], group["maxReplicas"]) == (2, 5)
    assert most(play) == 2, "its seats are others' meanwhile"
    for count in (3, 4, 3, 4):
        group["replicas"] = count
        play.sync()
        play.run()
    assert not [each for each in play.warnings if "somebody else" in each]
    assert len(play.placed("-gpu-")) == 4
    assert play.written == [5], "what it does is nobody else's change"
    group["replicas"] = 5
    play.sync()
    play.run()
    assert most(play) == 6, "it has all that it may have, and may want more"


def most(play: Played) -> int:
    """The greatest size that the autoscaler gives it now."""
    [found] = play.scheduler.controllers.elastic_gangs(play.scheduler.state)
    return found.task.most


def test_workers_that_rays_own_autoscaler_added_are_surplus() -> None:
    play = Played(raycluster(5, own=True), racks=(5,)).run()
    play.other("r", 2)
    play.run()
    group = play.raw["spec"]["workerGroupSpecs"][1]
    assert (group["replicas"], group["maxReplicas"]) == (3, 3)
    assert len(play.placed("-gpu-")) == 3
    assert play.others_placed("r") == 2


# --- what the facts say ---------------------------------------------------------


def test_sizes_count_pods_and_whose_they_are() -> None:
    found = seen(jobset(replicas=3, size=2))
    task = found.task
    assert (task.least, task.most, task.step) == (6, 18, 3)
    assert (found.size, found.unit, found.role, found.place) == (6, 3, "workers", 1)
    assert (found.leaves, found.completions, found.gang) == (BY_INDEX, True, "jobset/train")
    found = seen(leaderworkerset(2))
    assert (found.size, found.unit, found.task.least, found.task.most) == (4, 2, 2, 6)
    found = seen(raycluster(3))
    assert (found.size, found.leaves, found.ceiling, found.role) == (3, BY_NAME, 0, "gpu")
    found = seen(raycluster(3, own=True))
    assert (found.size, found.ceiling, found.set_size) == (3, 6, 6)


def test_one_role_needs_no_name() -> None:
    raw = jobset(min="2", max="6", step="2")
    del raw["spec"]["replicatedJobs"][0]
    found = seen(raw)
    assert (found.error, found.role, found.task.step) == ("", "workers", 2)


def off(raw: Json, **change: Any) -> Json:
    found = deepcopy(raw)
    for key, value in change.items():
        found[key] = {**found.get(key, {}), **value}
    return found


@pytest.mark.parametrize(
    "raw",
    [
        off(jobset(), spec={"suspend": True}),
        off(jobset(), status={"conditions": [{"type": "Completed", "status": "True"}]}),
        off(jobset(), metadata={"deletionTimestamp": "2026-11-20T10:00:00Z"}),
        jobset(replicas=0),
        off(raycluster(), spec={"suspend": True}),
        leaderworkerset(0),
    ],
)
def test_nothing_is_decided_for_one_that_is_off(raw: Json) -> None:
    assert (seen(raw).size, seen(raw).error) == (0, "")


def workers(raw: Json, **change: Any) -> Json:
    raw["spec"]["replicatedJobs"][1]["template"]["spec"] |= change
    return raw


def group(raw: Json, **change: Any) -> Json:
    raw["spec"]["workerGroupSpecs"][1] |= change
    return raw


def owned(raw: Json) -> Json:
    by = {"kind": "TrainJob", "name": "tune", "uid": "t", "controller": True}
    raw["metadata"]["ownerReferences"] = [by]
    return raw


def leader_ready() -> Json:
    found = leaderworkerset()
    found["spec"]["startupPolicy"] = "LeaderReady"
    return found


def with_role_topology() -> Json:
    found = leaderworkerset()
    found["metadata"]["annotations"]["lockstep.dev/role-topology"] = f"/each={RACK}"
    return found


def with_leader(**spec: Any) -> Json:
    """Workers of eight GPUs. spec: of the leader's pod."""
    found = leaderworkerset()
    workers = {"containers": [{"name": "w", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    template = found["spec"]["leaderWorkerTemplate"]
    template |= {"workerTemplate": {"spec": workers}, "leaderTemplate": {"spec": workers | spec}}
    return found


def test_a_leader_may_run_another_command() -> None:
    leader = {"name": "l", "command": ["serve"], "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    assert seen(with_leader(containers=[leader])).error == ""


@pytest.mark.parametrize(
    "raw", [jobset(), leaderworkerset(), raycluster()], ids=lambda raw: str(raw["kind"])
)
def test_what_a_change_costs_and_whether_it_yields_is_said_alike(raw: Json) -> None:
    key = "lockstep.dev/"
    own = {"resize-cost": "40s", "yields": "false", "speed": "2:1 4:3", "elastic-objective": "fill"}
    raw["metadata"]["annotations"] |= {key + name: value for name, value in own.items()}
    task = seen(raw).task
    assert (task.cost_s, task.yields, task.objective) == (40.0, False, "fill")
    assert task.speeds is not None
    for name, wrong in (
        ("resize-cost", "2d"),
        ("yields", "1"),
        ("speed", "1:inf 2:3"),
        ("elastic-objective", "most"),
    ):
        broken = off(raw)
        broken["metadata"]["annotations"][key + name] = wrong
        assert f"{key}{name}: " in seen(broken).error


WRONG = [
    (
        with_leader(containers=[{"name": "l", "resources": {}}]),
        "leaderTemplate: it needs other resources",
    ),
    (with_leader(nodeSelector={"a": "b"}), "leaderTemplate: it needs other resources or nodes"),
    (with_leader(containers=[7]), ""),
    (
        jobset(min="2", max="6"),
        "elastic-min: the name of a replicatedJob is missing (NAME: 2); there is driver, workers",
    ),
    (jobset(min="helpers: 2"), "elastic-min, -max and -step name both 'helpers' and 'workers'"),
    (jobset(min="x: 2", max="x: 4"), "there is no replicatedJob 'x' (NAME: 2); there is driver"),
    (jobset(min="x: 2", max="x: 4", step="y: 2"), "name both 'x' and 'y'"),
    (jobset(min="workers: 7"), "elastic-min: 7 is above lockstep.dev/elastic-max, 6"),
    (jobset(step="workers: 3"), "elastic-step: 3 does not divide 4"),
    (
        jobset(max="workers: 1000000000"),
        'elastic-max: "1000000000" is not a whole number from 1 to',
    ),
    (jobset(max="workers: NaN"), 'elastic-max: "NaN" is not a whole number'),
    (jobset(max="workers: " + "9" * 2**20), "elastic-max: "),
    (jobset(max="w" * 2**20 + ": 3"), "elastic-max: "),
    (jobset(max="workers:\x00 3"), "elastic-max: "),
    (jobset(max="workers: -3"), "elastic-max: "),
    (jobset(max=":"), "elastic-max: "),
    (jobset(replicas=90_000), "elastic-max: 6 units of 90000 pods are more than 100000 pods"),
    (workers(jobset(), completions=9), "template.spec.completions: not equal to parallelism, 2"),
    (workers(jobset(), completionMode="NonIndexed"), "completionMode: only Indexed"),
    (workers(jobset(), parallelism=-1), "parallelism: -1 is not a whole number"),
    (owned(jobset()), "metadata.ownerReferences: trainjob/tune sets the number of its nodes"),
    (leaderworkerset(min="a: 1"), 'elastic-min: "a: 1" is not a whole number'),
    (leader_ready(), "the leaders start before their workers"),
    (with_role_topology(), "annotation lockstep.dev/role-topology: the groups of an elastic"),
    (raycluster(min="gpu: 1"), "elastic-min: 1 is below spec.workerGroupSpecs[1].minReplicas, 2"),
    (raycluster(max="gpu: 7"), "elastic-max: 7 is above spec.workerGroupSpecs[1].maxReplicas, 6"),
    (
        raycluster(own=True, min="gpu: 3"),
        "elastic-min: 3 is not spec.workerGroupSpecs[1].minReplicas, 2",
    ),
    (group(raycluster(), numOfHosts=4), "numOfHosts: 4; only groups of one host vary"),
    (group(raycluster(), maxReplicas="many"), "maxReplicas: 'many' is not a whole number"),
    (group(raycluster(), groupName=7), "groupName"),
    (off(jobset(), spec={"replicatedJobs": {}}), "there is none"),
    (off(jobset(), spec={"replicatedJobs": [7]}), ""),
    (off(raycluster(), spec={"workerGroupSpecs": "x"}), "spec.workerGroupSpecs: 'x' is not a list"),
]


@pytest.mark.parametrize(("raw", "why"), WRONG)
def test_what_is_wrong_is_one_sentence_and_disturbs_nothing(raw: Json, why: str) -> None:
    found = seen(raw)
    assert found.error
    assert why in found.error
    assert len(found.error) <= 601


def test_an_invalid_range_leaves_gang_and_size_as_they_are() -> None:
    play = Played(jobset(size=4, min="workers: 9"), racks=(8,)).run()
    assert len(play.placed("workers")) == 4
    assert play.written == []
    gang = play.scheduler.state.gangs[made.SPACE, "jobset/train", True]
    assert gang.minimum == 5
    few = Played(jobset(size=4, min="workers: 9"), racks=(3,)).run()
    assert few.placed() == [], "all of them start together, as without the annotation"


def test_pods_whose_labels_lie_about_their_index_are_no_members() -> None:
    play = Played(leaderworkerset(3), racks=(6,))
    lies = {"serve-0-1": "5", "serve-1": "9" * 40, "serve-1-1": "-1"}
    for name, label in lies.items():
        pod = play.pods[name]
        pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] = label
        play.facts.append(READER.pod(pod))
    play.run()
    [gang] = play.scheduler.controllers.elastic_gangs(play.scheduler.state)
    assert sorted(gang.numbers.values()) == [0, 4, 5], "nobody takes the place of serve-2-1"
    assert not play.evicted


def test_a_size_is_one_of_whole_groups_where_a_lower_number_lacks_its_pod() -> None:
    play = Played(leaderworkerset(3), racks=(6,)).run()
    controllers = play.scheduler.controllers
    assert isinstance(controllers, BatchControllers)
    sizes = controllers.elastic
    key = (made.SPACE, "leaderworkerset/serve", True)
    assert sizes.resize(Resize(key, (0, 2), "room for r", NEED))
    assert sizes.by_gang[key[:2]].decided == NewSize(4, "room for r")
