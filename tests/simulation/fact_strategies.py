"""Facts in any order, twice, late and contradictory, as Hypothesis strategies."""

from dataclasses import replace

from hypothesis import strategies as st

from central.model.facts import (
    Answered,
    BindDone,
    BindFailed,
    BudgetGone,
    EvictDone,
    GangGone,
    GpusIdle,
    HyperNodeGone,
    HyperNodeSeen,
    JobGone,
    JobSeen,
    Member,
    MemoryExceeded,
    NamespaceSeen,
    NodeGone,
    NodeOffers,
    NodeSilent,
    PodGone,
    QueueGone,
    QueueSeen,
    RdmaUsed,
    Roles,
    SubGroupLayer,
    SubGroups,
)
from central.model.jobspec import PHASES, JobMember, JobSpec, JobStatus, LifecyclePolicy, TaskSpec
from central.model.pod_rules import Expression, Nearer, Port, Requirement, Rules, Spread
from central.model.volumes import (
    AttachLimits,
    CapacityGone,
    CapacitySeen,
    ClaimGone,
    ClaimSeen,
    DriverSeen,
    StorageClassGone,
    StorageClassSeen,
    VolumeGone,
    VolumeSeen,
)
from protos.names import GPU, RACK
from protos.topology import MemoryOver, RdmaLimit, RdmaUse
from tests.central import factories

NODES = st.sampled_from(["a", "b", "c"])
PODS = st.sampled_from([f"{gang}-{i}" for gang in ("g", "h", "") for i in range(3)])
GRANTS = st.lists(
    st.one_of(
        st.builds(lambda pod, gpus: factories.grant(pod, *gpus), PODS, st.lists(st.integers(0, 5))),
        st.builds(
            factories.grant_part, PODS, st.integers(0, 5), st.sampled_from([10, 30, 60, 100])
        ),
        st.builds(factories.grant_card, PODS, st.integers(0, 1), st.integers(0, 7)),
        st.builds(
            lambda pod, ids: factories.grant_slices(pod, *ids), PODS, st.lists(st.integers(0, 5))
        ),
    ),
    max_size=3,
).map(tuple)
RULES = st.sampled_from(
    [
        None,
        None,
        None,
        factories.apart("x", factories.HOST),
        factories.apart("x", RACK),
        factories.near("x", RACK),
        factories.near("y", factories.HOST),
        factories.even("x", RACK),
        factories.even("y", factories.HOST, 2),
        Rules(
            nodes=((3, (Requirement(RACK, "In", ("r1",)),)),),
            nearer=(Nearer(factories.mates("x"), RACK, -2),),
            even=(Spread(factories.mates("y"), factories.HOST, 1),),
        ),
        Rules(ports=(Port("TCP", 80), Port("TCP", 443, "10.0.0.1"))),
        Rules(
            near=factories.near("x", RACK).near,
            apart=factories.apart("y", factories.HOST).apart,
            ports=(Port("TCP", 443),),
        ),
    ]
)
CLAIMS = st.sampled_from([(), (), (), ("c",), ("c", "d")])
ROOM = st.sampled_from([(), ((Requirement(RACK, "In", ("r1",)),),)])
PLACES = st.sampled_from([(), (((Requirement(RACK, "In", ("r1",)),),),)])
ON = st.sampled_from([((Requirement(factories.HOST, "In", (name,)),),) for name in "abc"])
VOLUMES = st.one_of(
    st.builds(
        lambda name, places, size, phase, kept: VolumeSeen(
            name, places, storage_class="s", size=size, phase=phase, claim=kept
        ),
        st.sampled_from(["x", "y", "z"]),
        st.one_of(ON.map(lambda terms: (terms,)), PLACES),
        st.integers(1, 2),
        st.sampled_from(["Available", "Available", "Available", "Bound"]),
        st.sampled_from([None, None, None, ("ns", "c"), ("ns", "w0")]),
    ),
    st.builds(VolumeGone, st.sampled_from(["x", "y", "z"])),
)
LABELS = st.sampled_from([(), (), (("app", "x"),), (("app", "y"),)])
REQUESTABLE = st.sampled_from(
    [
        {},
        {},
        {"subgroups": (SubGroups("s", 2, 1, keys=("app",), required="node"),)},
        {
            "subgroups": (
                SubGroups("s", 1, 2, keys=("app",), required="island"),
                SubGroups("t", 2, required=RACK),
            )
        },
        {"subgroups": (SubGroups("s", 2, labels=(Expression("app", "In", ("x",)),), tier=1),)},
        {
            "subgroups": (
                SubGroups(
                    "s", 1, keys=("app",), required="node", layers=(SubGroupLayer((), RACK),)
                ),
            )
        },
        {"topology_preferred": RACK},
        {"placement": "spread"},
        {"preferred_tier": 2},
        {"roles": Roles(near=(("ps", "worker"),), apart=(("ps", "ps"),))},
        {
            "subgroups": (SubGroups("s", 1, keys=("app",), required=RACK),),
            "roles": Roles(near=(("ps", "worker"),), apart=(("ps", "ps"),)),
        },
        {"subgroups": (SubGroups("s", 2, keys=("app",), required=RACK),), "placement": "spread"},
    ]
)
QUEUES = st.sampled_from(["p", "q", "r", "default", "root"])
JOBS = st.sampled_from(["k", "l"])
SPEC = JobSpec(
    "ns",
    "k",
    "u",
    (TaskSpec("t", 2, 1, {"spec": {"containers": [{"name": "c"}]}}, requests=(("cpu", 100),)),),
    min_available=1,
    policies=(LifecyclePolicy("RestartPod", ("PodFailed",)), LifecyclePolicy("AbortJob", ("*",))),
)
AMOUNTS = st.sampled_from([(), (), ((GPU, 2),), ((GPU, 4),), (("cpu", 300),)])
FACTS = st.one_of(
    st.builds(
        lambda name, rack, gpus, off, slices: factories.node(
            name, rack=rack, gpus=gpus, unschedulable=off, shares=True, slices=slices
        ),
        NODES,
        st.sampled_from(["r1", "r2", ""]),
        st.integers(0, 5),
        st.booleans(),
        st.integers(0, 4),
    ),
    st.builds(
        lambda pod, handles, models: factories.of_kind(factories.wishing(pod, handles), models),
        st.builds(
            lambda name, gpus, node, phase, ours, deleting, lasts, urgent, rules, labels, claims, task: (
                factories.pod(
                    name,
                    gpus,
                    gang=name.partition("-")[0],
                    node=node,
                    phase=phase,
                    ours=ours,
                    deleting=deleting,
                    runs_for_s=lasts,
                    priority=urgent,
                    rules=rules,
                    labels=labels,
                    claims=claims,
                    task=task,
                )
            ),
            PODS,
            st.integers(0, 3),
            st.one_of(st.just(""), NODES),
            st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
            st.booleans(),
            st.booleans(),
            st.sampled_from([None, None, 10.0, 50.0]),
            st.sampled_from([0, 0, 0, 5]),
            RULES,
            LABELS,
            CLAIMS,
            st.sampled_from(["ps", "worker"]),
        ),
        st.sampled_from([0, 0, 0, 4, 9]),
        st.sampled_from([(), (), (), (), ("test",), ("other*",)]),
    ),
    st.builds(
        lambda name, slices, node, phase, ours: factories.slicer(
            factories.pod(name, gang=name.partition("-")[0], node=node, phase=phase, ours=ours),
            slices,
        ),
        PODS,
        st.integers(1, 3),
        st.one_of(st.just(""), NODES),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        st.sampled_from([True, True, False]),
    ),
    st.builds(
        lambda name, share, node, phase, ours, urgent: factories.part(
            name,
            share,
            gang=name.partition("-")[0],
            node=node,
            phase=phase,
            ours=ours,
            priority=urgent,
        ),
        PODS,
        st.sampled_from([10, 30, 60, 100, 150]),
        st.one_of(st.just(""), NODES),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        st.sampled_from([True, True, False]),
        st.sampled_from([0, 0, 0, 5]),
    ),
    st.builds(
        lambda name, minimum, level, queue, wish, more: factories.gang(
            name, minimum, topology_required=level, queue=queue, min_resources=more, **wish
        ),
        st.sampled_from(["g", "h"]),
        st.integers(0, 4),
        st.sampled_from(["", RACK, "node", "numa", "pcie-switch", "island", "no/such"]),
        st.sampled_from(["default", "default", "p", "q", "nowhere"]),
        REQUESTABLE,
        AMOUNTS,
    ),
    st.builds(
        QueueSeen,
        QUEUES,
        weight=st.integers(1, 3),
        parent=st.sampled_from(["", "", "root", "p", "q", "nowhere"]),
        capability=AMOUNTS,
        guarantee=AMOUNTS,
        deserved=AMOUNTS,
        closed=st.sampled_from([False, False, True]),
        error=st.sampled_from(["", "", "", "spec.weight: 0"]),
        uid=st.sampled_from(["", "one", "two"]),
        fifo=st.sampled_from([False, False, True]),
    ),
    st.builds(
        Answered,
        st.just("SetStatus"),
        st.sampled_from(["Queue", "HyperNode"]),
        st.just(""),
        st.one_of(QUEUES, st.sampled_from(["s0", "s1"])),
        why=st.sampled_from(["", "no"]),
    ),
    st.builds(QueueGone, QUEUES),
    st.builds(NamespaceSeen, st.just("ns"), queue=st.sampled_from(["", "p", "q", "nowhere"])),
    st.builds(
        lambda name, gpus, sick, generation, boot, grants, cap, default, slices: factories.report(
            name,
            factories.sliced(
                factories.topology(
                    gpus,
                    sick=sick,
                    shares=name != "c",
                    model="test" if generation < 3 else "other 1",
                    # Unknown, known, and known of the first GPUs only.
                    switches=((), ((0, 1), tuple(range(2, gpus))), ((0,), (1,)))[
                        generation % 3 if gpus > 2 else 0
                    ],
                ),
                slices,
                sick,
            )
            if cap is None
            else factories.carded(factories.topology(gpus, sick=sick, shares=True), cap, default),
            generation,
            grants,
            boot,
        ),
        NODES,
        st.integers(0, 5),
        st.lists(st.integers(0, 4)).map(tuple),
        st.integers(1, 4),
        st.sampled_from(["one", "two"]),
        GRANTS,
        st.sampled_from([None, None, -1, 8, 15]),
        st.sampled_from([-1, 3]),
        st.integers(0, 4),
    ),
    st.builds(
        lambda name, bound, other, one_pod: ClaimSeen(
            "ns", name, "v" if bound else "", bound, other, storage_class="s", one_pod=one_pod
        ),
        st.sampled_from(["c", "d"]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(ClaimGone, st.just("ns"), st.sampled_from(["c", "d"])),
    st.builds(VolumeSeen, st.just("v"), PLACES, st.sampled_from(["", "disk"])),
    st.just(VolumeGone("v")),
    st.builds(StorageClassSeen, st.just("s"), st.sampled_from(["disk", ""]), st.booleans()),
    VOLUMES,
    st.just(StorageClassGone("s")),
    st.builds(DriverSeen, st.just("disk"), st.booleans()),
    st.builds(CapacitySeen, st.just("ns"), st.just("room"), st.just("s"), ROOM, st.integers(0, 1)),
    st.just(CapacityGone("ns", "room")),
    st.builds(AttachLimits, NODES, st.sampled_from([(), (("disk", 1),)])),
    st.builds(NodeGone, NODES),
    st.builds(
        lambda name, tier, members: HyperNodeSeen(
            name,
            tier,
            tuple(Member("HyperNode" if m > "d" else "Node", m) for m in members),
            uid=name,
        ),
        st.sampled_from(["s0", "s1"]),
        st.integers(0, 2),
        st.lists(st.sampled_from(["a", "b", "c", "s0", "s1"])),
    ),
    st.builds(HyperNodeGone, st.sampled_from(["s0", "s1"])),
    st.builds(NodeSilent, NODES),
    st.builds(NodeOffers, NODES, st.booleans()),
    st.builds(
        lambda name, phase, version, replicas, deleting, error: JobSeen(
            replace(
                SPEC, name=name, uid=f"{name}u", tasks=(replace(SPEC.tasks[0], replicas=replicas),)
            ),
            JobStatus(phase, version=version),
            deleting=deleting,
            error=error,
        ),
        JOBS,
        st.sampled_from(["", *PHASES]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([False, False, False, True]),
        st.sampled_from(["", "", "", "spec.tasks: none"]),
    ),
    st.builds(JobGone, st.just("ns"), JOBS),
    st.builds(
        lambda job, index, version, phase, node, deleting: factories.pod(
            f"{job}-t-{index}",
            gang=f"{job}-{job}u",
            phase=phase,
            node=node,
            deleting=deleting,
            part=JobMember(job, f"{job}u", "t", index, version),
        ),
        JOBS,
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        st.one_of(st.just(""), NODES),
        st.booleans(),
    ),
    st.builds(PodGone, st.builds("uid-{}-t-{}".format, JOBS, st.integers(0, 2))),
    st.builds(
        Answered,
        st.sampled_from(["Create", "Delete", "SetStatus", "Patch"]),
        st.sampled_from(["Pod", "PodGroup", "Job"]),
        st.just("ns"),
        st.sampled_from(["k", "k-ku", "k-t-0", "k-t-1"]),
        why=st.sampled_from(["", "", "no"]),
    ),
    st.builds(lambda job: factories.gang(f"{job}-{job}u", 2), JOBS),
    st.builds(
        lambda node, pod, final: MemoryExceeded(
            node, (MemoryOver("ns", pod, f"uid-{pod}", 0, 2, 1, final),)
        ),
        NODES,
        PODS,
        st.booleans(),
    ),
    st.builds(
        lambda node, pod, idle_s: GpusIdle(node, (("ns", pod, idle_s),)),
        NODES,
        PODS,
        st.sampled_from([300.0, 1e6]),
    ),
    st.builds(
        lambda node, pod, card, have, refused: RdmaUsed(
            node, (RdmaUse("ns", pod, card, RdmaLimit(have, 1), RdmaLimit(2, -1), refused),)
        ),
        NODES,
        PODS,
        st.sampled_from(["mlx5_0", "mlx5_1"]),
        st.integers(0, 3),
        st.integers(-1, 2),
    ),
    st.builds(PodGone, PODS.map("uid-{}".format)),
    st.builds(GangGone, st.just("ns"), st.sampled_from(["g", "h"])),
    st.builds(BindDone, PODS.map("uid-{}".format), NODES),
    st.builds(BindFailed, PODS.map("uid-{}".format), NODES, st.just("no"), st.booleans()),
    st.builds(EvictDone, PODS.map("uid-{}".format), st.sampled_from(["", "budget"]), st.booleans()),
    st.builds(
        lambda app, allowed, pods: factories.budget(app, allowed, tuple(pods)),
        st.sampled_from(["x", "y"]),
        st.integers(0, 3),
        st.lists(PODS, max_size=2),
    ),
    st.builds(BudgetGone, st.just("ns"), st.sampled_from(["keep-x", "keep-y"])),
)
