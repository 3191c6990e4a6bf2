from agent.machine.survey import survey
from agent.resources.device_resource import ContainerDevices, DeviceRequest
from agent.resources.gpu_allocation import preferred, response
from protos.names import GPU
from protos.topology import Grant, NodeTopology
from tests.fakes import machines
from tests.fakes.nodebox import intent

SWITCHED = survey(machines.machine())
BRIDGED = survey(machines.machine(bridged=True))


def listed(pod: str, gpus: list[int] | None = None, container: str = "c0") -> ContainerDevices:
    held = tuple(machines.uuid(i) for i in gpus or ())
    return ContainerDevices("team", pod, container, ((GPU, held),) if held else ())


def ask(
    size: int,
    rows: list[ContainerDevices] | None,
    plans: list[Grant],
    free: range | list[int] = range(8),
    *,
    must: tuple[int, ...] = (),
    before: frozenset[tuple[str, str, str]] = frozenset(),
    topology: NodeTopology = SWITCHED,
) -> list[int]:
    question = DeviceRequest(
        tuple(machines.uuid(i) for i in free),
        tuple(machines.uuid(i) for i in must),
        size,
        None if rows is None else tuple(rows),
        before,
    )
    choice = preferred(question, topology, plans)
    assert len(choice.device_ids) == len(set(choice.device_ids)) == size
    assert set(choice.device_ids) <= set(question.available)
    return [int(device[4:12]) for device in choice.device_ids]


def test_the_pod_that_is_listed_without_devices_gets_its_plan() -> None:
    plans = [intent("a", [0, 1]), intent("b", [6, 3])]
    assert ask(2, [listed("a", [0, 1]), listed("b")], plans) == [3, 6]


def test_equal_sizes_do_not_confuse() -> None:
    plans = [intent("a", [0, 1]), intent("b", [2, 3]), intent("c", [4, 5])]
    assert ask(2, [listed("x", [7]), listed("c")], plans) == [4, 5]


def test_a_stranger_keeps_off_what_is_promised() -> None:
    """A pod of the default scheduler is admitted before the planned pod."""
    plans = [intent("a", [0, 1, 2, 3])]
    assert ask(2, [listed("stranger")], plans) == [4, 5]


def test_a_stranger_gets_promised_gpus_only_where_nothing_else_is_left() -> None:
    plans = [intent("a", [0, 1, 2]), intent("b", [3, 4, 5, 6])]
    assert ask(1, [listed("stranger")], plans) == [7]
    assert ask(4, [listed("stranger")], plans) == [3, 4, 5, 6]  # spoils one plan, not two


def test_a_plan_that_is_taken_leaves_the_promises_of_others_alone() -> None:
    plans = [intent("a", [0, 1]), intent("b", [2, 3]), intent("c", [6, 7])]
    free = [1, 2, 3, 4, 5, 6, 7]  # another pod took 0
    assert ask(2, [listed("a")], plans, free) == [4, 5]


def test_a_plan_for_gpus_that_are_not_here_is_no_plan() -> None:
    plan = Grant("team", "a", "c0", "nvidia.com/gpu", ("GPU-elsewhere", machines.uuid(3)))
    assert ask(2, [listed("a")], [plan, intent("b", [0, 1])]) == [2, 3]


def test_pod_resources_silent_means_choosing_around_the_plans() -> None:
    plans = [intent("a", [0, 1]), intent("b", [4, 5, 6, 7])]
    assert ask(2, None, plans) == [2, 3]
    assert ask(4, None, plans) == [4, 5, 6, 7]


def test_without_plans_the_closest_are_taken() -> None:
    assert ask(2, [listed("a")], [], [0, 2, 3, 5], topology=BRIDGED) == [2, 3]


def test_must_haves_are_in() -> None:
    assert ask(2, [listed("a")], [], must=(5,), topology=BRIDGED) == [4, 5]
    assert ask(2, [listed("a")], [], [0, 2, 3, 6, 5], must=(5,), topology=BRIDGED) == [5, 6]
    assert ask(3, [listed("a")], [intent("a", [1, 2, 3])], must=(2,)) == [1, 2, 3]


def test_containers_of_one_pod_are_served_in_their_order() -> None:
    plans = [intent("a", [0, 1], "c0"), intent("a", [6, 7], "c1")]
    both = [listed("a"), listed("a", container="c1")]
    assert ask(2, both, plans) == [0, 1]
    assert ask(2, [listed("a", [0, 1]), both[1]], plans) == [6, 7]


def test_an_init_container_of_another_size_stays_within_its_pods_plan() -> None:
    plans = [intent("a", [5, 6, 7]), intent("b", [0, 1])]
    assert set(ask(1, [listed("a")], plans)) <= {5, 6, 7}


def test_a_pod_that_was_not_admitted_is_not_meant_again() -> None:
    """It stays in pod-resources without devices, and the plans may still have it."""
    plans = [intent("failed", [0, 1]), intent("next", [4, 5])]
    rows = [listed("failed"), listed("next")]
    assert ask(2, rows, plans, before=frozenset({("team", "failed", "c0")})) == [4, 5]


def test_two_that_could_be_meant_get_neither_plan_while_there_is_room() -> None:
    plans = [intent("a", [0, 1]), intent("b", [2, 3])]
    assert ask(2, [listed("a"), listed("b")], plans) == [4, 5]
    assert ask(2, [listed("a"), listed("b")], plans, range(4)) in ([0, 1], [2, 3])


def test_devices_that_the_survey_does_not_know_are_the_last_resort() -> None:
    question = DeviceRequest(("GPU-new", machines.uuid(1)), (), 2)
    choice = preferred(question, SWITCHED, ())
    assert set(choice.device_ids) == set(question.available)


def test_what_a_container_is_told() -> None:
    told = response([machines.uuid(6), machines.uuid(2)], SWITCHED, ("/dev/nvidia2",))
    assert told.envs["LOCKSTEP_GPUS"] == "2,6"
    assert told.envs["NVIDIA_VISIBLE_DEVICES"] == f"{machines.uuid(2)},{machines.uuid(6)}"
    assert told.envs["LOCKSTEP_GPU_UUIDS"] == told.envs["NVIDIA_VISIBLE_DEVICES"]
    assert told.envs["LOCKSTEP_ISLAND"] == ",".join(
        str(place) for place, one in enumerate(SWITCHED.islands) if {2, 6} & set(one)
    )
    assert told.device_nodes == ("/dev/nvidia2",)
    assert told.annotations == {"lockstep.dev/gpus": "2,6"}


def reason(
    size: int, rows: list[ContainerDevices] | None, plans: list[Grant], free: range = range(8)
) -> str:
    question = DeviceRequest(
        tuple(machines.uuid(i) for i in free),
        (),
        size,
        None if rows is None else tuple(rows),
        frozenset(),
    )
    return preferred(question, SWITCHED, plans).why


def test_the_choice_says_why() -> None:
    plans = [intent("a", [0, 1]), intent("b", [2, 3])]
    assert reason(2, [listed("a")], plans) == "team/a, container c0: as planned"
    taken = reason(2, [listed("a")], plans, range(1, 8))
    assert taken == "team/a, container c0: the planned GPUs 0,1 are not available"
    first = reason(1, [listed("a")], plans)
    assert first == "team/a, container c0: the GPUs planned for its pod first"
    assert reason(2, [listed("a"), listed("b")], plans) == "one of 2 pods with a plan"
    assert reason(2, [listed("x")], plans) == "a pod without a plan"
    assert reason(2, [listed("x")], []) == "no plans on this node"
    assert reason(5, [listed("x")], plans) == (
        "a pod without a plan; all other GPUs are planned for others"
    )


def test_an_init_container_uses_its_pods_plans_in_their_order() -> None:
    """Of another pod it takes nothing, and of its own the next container's GPUs before the last one's."""
    plans = [
        intent("a", [0, 1]),
        intent("a", [5], "c1"),
        intent("a", [2], "c2"),
        intent("b", [3, 4]),
    ]
    rows = [listed("a"), listed("a", container="c1"), listed("a", container="c2")]
    before = frozenset({("team", "a", "c1"), ("team", "a", "c2")})
    assert ask(3, rows, plans, before=before) == [0, 1, 5]
    assert ask(5, rows, plans, before=before) == [0, 1, 2, 5, 6]
