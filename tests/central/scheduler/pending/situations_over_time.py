"""Situations of sixty_pending.md about pods that are missing, gated or terminating, reservations, volumes and device
claims. As in situations_on_nodes.py."""

from collections.abc import Iterator

from central.model.json_types import Json
from protos.names import HOSTNAME
from tests.central.scheduler.pending.pending_world import PendingWorld, gang, group, node, pod
from tests.central.simulator import device_objects

Story = Iterator[str]
RUNS = {"runs-for": "1h"}


def pods_that_do_not_exist_yet(world: PendingWorld) -> Story:
    world.apply(node("a"), group("train", 4))
    world.apply(*(pod(f"train-{n}", 1, gang="train") for n in range(3)))
    yield "train"
    world.apply(pod("train-3", 1, gang="train"))


def pods_of_one_task_are_missing(world: PendingWorld) -> Story:
    def member(task: str, number: int) -> Json:
        return pod(f"{task}-{number}", 1, gang="train", notes={"volcano.sh/task-spec": task})

    world.apply(node("a"), group("train", 3, minTaskMember={"ps": 1, "worker": 2}))
    world.apply(*(member("worker", n) for n in range(3)))
    yield "train"
    world.apply(member("ps", 0))


def podgroup_that_does_not_exist(world: PendingWorld) -> Story:
    world.apply(node("a"), *(pod(f"train-{n}", 1, gang="train") for n in range(2)))
    yield "train"
    world.apply(group("train", 2))


def scheduling_gates(world: PendingWorld) -> Story:
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    world.apply(node("a"), *gang("train", 2, 1, schedulingGates=gates))
    yield "train"
    world.apply(*gang("train", 2, 1))


def pods_that_do_not_end(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"), *(pod(f"old-{at}", 8, on=at) for at in "ab"))
    world.delete("old-a", "old-b", since=7200)
    world.apply(*gang("train", 2, 8))
    yield "train"
    world.end("old-a", "old-b")


def victims_with_a_long_grace(world: PendingWorld) -> Story:
    world.apply(node("a"))
    world.apply(pod("old", 8, on="a", priority=0, terminationGracePeriodSeconds=600))
    world.apply(*gang("train", 1, 8, priority=100))
    yield "train"
    world.end("old")


def start_that_is_known(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"))
    world.apply(pod("old", 8, on="a", notes={"runs-for": "25m"}))
    world.apply(pod("older", 8, on="b", notes={"runs-for": "10m"}))
    world.apply(*gang("train", 2, 8))
    yield "train"
    world.wait(600.0)
    world.end("older")
    world.wait(900.0)
    world.end("old")


def start_in_half_a_day(world: PendingWorld) -> Story:
    world.apply(node("a"), pod("old", 8, on="a", notes={"runs-for": "90m"}))
    world.apply(*gang("train", 1, 8))
    yield "train"
    world.end("old")


def backfill_without_a_run_time(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"), pod("old", 8, on="a", notes=RUNS))
    world.apply(*gang("big", 2, 8))
    world.apply(*gang("small", 1, 1))
    yield "small"
    world.apply(*gang("small", 1, 1, notes={"runs-for": "10m"}))


def backfill_that_takes_too_long(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"), pod("old", 8, on="a", notes=RUNS))
    world.apply(*gang("big", 2, 8))
    world.apply(*gang("small", 1, 1, notes={"runs-for": "3h"}))
    yield "small"
    world.apply(*gang("small", 1, 1, notes={"runs-for": "30m"}))


def behind_a_gang_without_a_known_start(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"), pod("old", 8, on="a"))
    world.apply(*gang("big", 2, 8))
    for _ in range(16):
        world.wait(600.0)
    world.apply(*gang("small", 1, 1))
    yield "small"
    world.end("old")
    world.end("big-0", "big-1")


def min_resources(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"), pod("old", 8, on="a"))
    wants = {"minResources": {"nvidia.com/gpu": "16"}}
    world.apply(group("train", 1, **wants), pod("train-0", 8, gang="train"))
    yield "train"
    world.end("old")


def claim(name: str, storage_class: str = "fast", volume: str = "", **spec: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if volume else {},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "100Gi"}},
            **({"volumeName": volume} if volume else {}),
            **spec,
        },
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def storage_class(name: str, provisioner: str, mode: str = "WaitForFirstConsumer") -> Json:
    api = "storage.k8s.io/v1"
    found = {"apiVersion": api, "kind": "StorageClass", "metadata": {"name": name}}
    return {**found, "provisioner": provisioner, "volumeBindingMode": mode}


def volume(name: str, on: str, **spec: object) -> Json:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [on]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **spec,
        },
    }


def using(*names: str) -> Json:
    return {"volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]}


def claim_that_does_not_exist(world: PendingWorld) -> Story:
    world.apply(node("a"), storage_class("fast", "csi.example.com"))
    world.apply(*gang("train", 1, 1, **using("data")))
    yield "train"
    world.apply(volume("v", "a"), claim("data", volume="v"))


def claim_that_is_not_bound(world: PendingWorld) -> Story:
    world.apply(node("a"), storage_class("fast", "csi.example.com", "Immediate"), claim("data"))
    world.apply(*gang("train", 1, 1, **using("data")))
    yield "train"
    world.apply(volume("v", "a"), claim("data", volume="v"))


def volume_on_a_full_node(world: PendingWorld) -> Story:
    world.apply(node("a"), node("b"), pod("old", 8, on="a"))
    world.apply(
        storage_class("fast", "csi.example.com"), volume("v", "a"), claim("data", volume="v")
    )
    world.apply(*gang("train", 1, 8, **using("data")))
    yield "train"
    world.end("old")


def claim_of_one_pod_at_a_time(world: PendingWorld) -> Story:
    world.apply(node("a"), storage_class("fast", "csi.example.com"), volume("v", "a"))
    world.apply(claim("data", volume="v", accessModes=["ReadWriteOncePod"]))
    world.apply(pod("old", 1, on="a", **using("data")))
    world.apply(*gang("train", 1, 1, **using("data")))
    yield "train"
    world.end("old")


def device_class_that_does_not_exist(world: PendingWorld) -> Story:
    world.apply(node("a"), device_objects.devices("a", 2))
    world.apply(device_objects.resource_claim("gpu", device_objects.asks(1)))
    world.apply(*gang("train", 1, 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]))
    yield "train"
    world.apply(device_objects.device_class())


def devices_that_match(world: PendingWorld) -> Story:
    large = f'device.attributes["{device_objects.DRIVER}"].model == "H100"'
    world.apply(node("a"), device_objects.device_class())
    world.apply(device_objects.devices("a", 2, model="A100"))
    world.apply(device_objects.resource_claim("gpu", device_objects.asks(1, large)))
    world.apply(*gang("train", 1, 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]))
    yield "train"
    world.apply(device_objects.devices("a", 2, model="H100"))


def more_devices_than_are_free(world: PendingWorld) -> Story:
    world.apply(node("a"), device_objects.device_class(), device_objects.devices("a", 2))
    world.apply(device_objects.resource_claim("gpu", device_objects.asks(3)))
    world.apply(*gang("train", 1, 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]))
    yield "train"
    world.apply(device_objects.devices("a", 3))


def image_that_cannot_be_pulled(world: PendingWorld) -> Story:
    world.stuck = "ImagePullBackOff"
    notes = {"start-within": "10m"}
    world.apply(node("a"), *gang("train", 1, 8, notes=notes))
    for _ in range(3):
        world.wait(200.0)
    world.end("train-0")
    world.apply(*gang("train", 1, 8, notes=notes))
    yield "train"
    world.stuck = ""
    world.wait(60.0)
