"""The hollow kubelet keeps to what a real one does, with a plugin that does as little as it may."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from central.standalone.device_manager import CHECKPOINT
from central.standalone.hollow_kubelet import Container, KubeletPod
from tests.fakes.eventually import eventually
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.plugin import THING, Plugin


@pytest.fixture
def kubelet() -> Iterator[HollowKubelet]:
    with tempfile.TemporaryDirectory(prefix="ls-") as name, HollowKubelet(Path(name)) as made:
        yield made


@pytest.fixture
def plugin() -> Iterator[Plugin]:
    made = Plugin(get_preferred_allocation_available=True, pre_start_required=True)
    yield made
    made.stop()


def pod(name: str, *sizes: int, init: int = 0) -> KubeletPod:
    containers = tuple(Container(f"c{i}", ((THING, size),)) for i, size in enumerate(sizes))
    return KubeletPod(
        name, "ns", name, containers, (Container("init", ((THING, init),)),) if init else ()
    )


def serve(plugin: Plugin, kubelet: HollowKubelet) -> None:
    plugin.serve(kubelet)
    eventually(lambda: kubelet.capacity.get(THING) == plugin.count)


def test_the_plugins_advice_is_taken_where_it_makes_sense(
    kubelet: HollowKubelet, plugin: Plugin
) -> None:
    serve(plugin, kubelet)
    assert kubelet.add_pod(pod("a", 2)).containers[0].envs == {"THINGS": "t2,t3"}
    assert plugin.asked == [(["t0", "t1", "t2", "t3"], [], 2)]
    assert plugin.started == [["t2", "t3"]]
    assert kubelet.held() == {("ns", "a", "c0"): {THING: ("t2", "t3")}}


def test_without_advice_it_is_by_chance_but_the_same_chance(kubelet: HollowKubelet) -> None:
    picks = []
    for _ in range(2):
        silent = Plugin(16)
        with (
            tempfile.TemporaryDirectory(prefix="ls-") as name,
            HollowKubelet(Path(name), seed=7) as fresh,
        ):
            serve(silent, fresh)
            picks.append(
                [fresh.add_pod(pod(f"p{i}", 2)).containers[0].envs["THINGS"] for i in range(8)]
            )
            silent.stop()
        assert not silent.asked
        assert not silent.started
    assert picks[0] == picks[1]
    assert len({thing for pick in picks[0] for thing in pick.split(",")}) == 16


def test_init_containers_devices_are_used_again(kubelet: HollowKubelet, plugin: Plugin) -> None:
    serve(plugin, kubelet)
    admitted = kubelet.add_pod(pod("a", 2, init=1))
    assert admitted.containers[0].envs == {"THINGS": "t3"}
    assert "t3" in admitted.containers[1].devices[THING]
    assert plugin.asked[1][1:] == (["t3"], 2)


def test_health_and_the_end_of_the_stream(kubelet: HollowKubelet, plugin: Plugin) -> None:
    serve(plugin, kubelet)
    plugin.change(1, 3)
    eventually(lambda: kubelet.allocatable == {THING: 2})
    assert kubelet.capacity == {THING: 4}
    assert kubelet.add_pod(pod("big", 3)).reason == "UnexpectedAdmissionError"
    plugin.stop()
    eventually(lambda: kubelet.allocatable == {THING: 0})
    assert kubelet.capacity == {THING: 4}


def test_a_resource_nobody_has_registered(kubelet: HollowKubelet) -> None:
    assert kubelet.add_pod(pod("a", 1)).reason == f"OutOf{THING}"
    assert kubelet.add_pod(pod("b")).ok


def test_a_plugin_that_refuses(kubelet: HollowKubelet, plugin: Plugin) -> None:
    serve(plugin, kubelet)
    plugin.refuse = "not today"
    refused = kubelet.add_pod(pod("a", 4))
    assert refused.reason == "UnexpectedAdmissionError"
    assert "not today" in refused.message
    plugin.refuse = ""
    assert kubelet.add_pod(pod("b", 4), start=False).ok  # nothing was kept
    plugin.refuse = "not yet"
    assert kubelet.start_pod("b").reason == "RunContainerError"
    plugin.refuse = ""
    assert kubelet.start_pod("b").ok


def test_a_restart_wipes_sockets_and_keeps_allocations(
    kubelet: HollowKubelet, plugin: Plugin
) -> None:
    serve(plugin, kubelet)
    kubelet.add_pod(pod("a", 3))
    (kubelet.plugins / "left-over").touch()
    kubelet.restart()
    left = sorted(file.name for file in kubelet.plugins.iterdir())
    assert left == ["kubelet.sock", CHECKPOINT, "left-over"]
    assert kubelet.capacity == {THING: 0}
    assert not kubelet.add_pod(pod("early", 1)).ok
    plugin.stop()
    plugin.closed = False
    serve(plugin, kubelet)
    assert kubelet.add_pod(pod("b", 2)).reason == "UnexpectedAdmissionError"
    assert kubelet.add_pod(pod("c", 1)).containers[0].envs == {"THINGS": "t0"}
    kubelet.remove_pod("a")
    assert kubelet.add_pod(pod("d", 3)).ok
    entries = json.loads((kubelet.plugins / CHECKPOINT).read_text())["Data"]["PodDeviceEntries"]
    assert [entry["PodUID"] for entry in entries] == ["c", "d"]


def test_a_registration_in_another_language(kubelet: HollowKubelet, plugin: Plugin) -> None:
    with pytest.raises(grpc.RpcError, match="version v1alpha is not v1beta1"):
        plugin.serve(kubelet, version="v1alpha")
    assert kubelet.capacity == {}


def test_a_pod_as_the_api_has_it() -> None:
    limits = {"cpu": "500m", "memory": "1Gi", THING: "2"}
    seen = KubeletPod.from_object(
        {
            "metadata": {"uid": "u", "namespace": "n", "name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}, {"name": "d"}]},
        }
    )
    assert seen == KubeletPod("u", "n", "p", (Container("c", ((THING, 2),)), Container("d")))
