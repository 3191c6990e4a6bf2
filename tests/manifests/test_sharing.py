"""Components for GPUs in shares: what each adds is what the programs take, and they may be used together."""

import itertools
from typing import Any

import pytest

from agent import flags, settings
from protos import names
from tests.manifests.manifests import with_components

COMPONENTS = ("cdi", "kernel", "mps", "rdma", "watch")  # that change the agent


def daemonset(made: list[Any], name: str) -> Any:
    (found,) = [d for d in made if d["kind"] == "DaemonSet" and d["metadata"]["name"] == name]
    return found["spec"]["template"]["spec"]


def chosen(spec: Any) -> settings.Settings:
    return settings.settings(flags.parser().parse_args(spec["containers"][0]["args"]))


@pytest.mark.parametrize(
    "used", [*itertools.combinations(COMPONENTS, 1), ("rdma", "kernel", "mps", "watch", "cdi")]
)
def test_together_they_are_a_pod_that_kubernetes_takes(used: tuple[str, ...]) -> None:
    spec = daemonset(with_components(*used), "lockstep-agent")
    container = spec["containers"][0]
    chosen(spec)
    volumes = [volume["name"] for volume in spec["volumes"]]
    assert len(volumes) == len(set(volumes))
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(paths) == len(set(paths))
    assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
    context = container["securityContext"]
    # The API server refuses the two together.
    admin = "SYS_ADMIN" in context["capabilities"].get("add", ())
    assert not admin or context["allowPrivilegeEscalation"]


def test_nothing_of_it_is_there_by_default() -> None:
    spec = daemonset(with_components(), "lockstep-agent")
    assert "hostPID" not in spec
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert (chosen(spec).sharing_dir, chosen(spec).cgroup_root) == (None, None)


def test_watch_sees_the_hosts_processes() -> None:
    assert daemonset(with_components("watch"), "lockstep-agent")["hostPID"] is True


def test_kernel_writes_cgroups_where_the_driver_looks_for_them() -> None:
    spec = daemonset(with_components("rdma", "kernel"), "lockstep-agent")
    container = spec["containers"][0]
    assert str(chosen(spec).cgroup_root) == "/sys/fs/cgroup"
    assert "/sys/fs/cgroup" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_ADMIN"]


def test_agent_and_gpu_setup_meet_in_one_folder() -> None:
    """Under the same path on the host: device plugins name hosts' paths for what is mounted."""
    made = with_components("mps")
    folder = str(chosen(daemonset(made, "lockstep-agent")).sharing_dir)
    setup = daemonset(made, "lockstep-keeper")
    given = flags.parser().parse_args(setup["containers"][0]["args"])
    assert (given.command, str(given.sharing_dir)) == ("gpu-setup", folder)
    for name in ("lockstep-agent", "lockstep-keeper"):
        spec = daemonset(made, name)
        mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
        volumes = {v["name"]: v for v in spec["volumes"]}
        assert volumes[mounts[folder]]["hostPath"]["path"] == folder
    shm = {m["mountPath"]: m["name"] for m in setup["containers"][0]["volumeMounts"]}["/dev/shm"]
    paths = {v["name"]: v.get("hostPath", {}).get("path") for v in setup["volumes"]}
    assert paths[shm] == f"{folder}/shm"
    (setup_set,) = [d for d in made if d["metadata"]["name"] == "lockstep-keeper"]
    assert setup_set["metadata"]["namespace"] == names.NAMESPACE
    # A new version must not end the servers of whoever computes.
    assert setup_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert setup["hostPID"] is True
