"""A hollow kubelet that is wrong about its devices: it offers what pods hold, its List misses pods or
is late, and it forgets an Allocate that it has not recorded yet. Pods have cgroups."""

import random
from pathlib import Path

from central.standalone.hollow_kubelet import Admission, KubeletPod
from protos.stubs import podresources_pb2 as podresources
from tests.fakes.hollow_kubelet import HollowKubelet


class LyingKubelet(HollowKubelet):
    """Lists truthfully until told otherwise."""

    def __init__(self, directory: Path, seed: int = 0) -> None:
        super().__init__(directory, seed=seed, before_record=self._at_record)
        self.sysfs = directory / "sys"
        self.missing: set[str] = set()  # names of pods that List leaves out
        self.late = False  # List answers as it was when this was set
        self.asked_at_record = False  # someone calls List before each Allocate is recorded
        self._old = podresources.ListPodResourcesResponse()

    def tell_lies(self, order: random.Random) -> None:
        """Chooses the lies from now on."""
        living = [pod.name for pod in self._pods.values()]
        self.missing = {name for name in living if order.random() < 0.4}
        self._old, self.late = super().list_pods(), order.random() < 0.4
        self.asked_at_record = order.random() < 0.5
        if order.random() < 0.6:
            self.offer_all()

    def offer_all(self) -> None:
        """Takes all devices for free, though pods hold them."""
        with self._devices._mutex:
            self._devices._state.allocated = {}

    def list_pods(self) -> podresources.ListPodResourcesResponse:
        answer = super().list_pods()
        if self.late:
            return self._old
        kept = [pod for pod in answer.pod_resources if pod.name not in self.missing]
        return podresources.ListPodResourcesResponse(pod_resources=kept)

    def _at_record(self) -> None:
        if self.asked_at_record:
            for uid in sorted(self._ended):
                self.remove_pod(uid)
            self._devices._state.recount()  # as after pruning: what is not recorded is free

    def run_pod(self, pod: KubeletPod) -> Admission:
        """Admits the pod, makes its cgroup, starts its containers."""
        admitted = self.add_pod(pod, start=False)
        if not admitted.ok:
            self.end_pod(pod.uid)
            return admitted
        self._cgroup(pod.uid, running=True)
        return self.start_pod(pod.uid)

    def end(self, uid: str) -> None:
        """The pod's containers have ended, and its object is deleted."""
        self._cgroup(uid, running=False)
        self.end_pod(uid)
        self.remove_pod(uid)

    def _cgroup(self, uid: str, *, running: bool) -> None:
        folder = self.sysfs / "fs/cgroup/kubepods" / f"pod{uid}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.events").write_text(f"populated {int(running)}\n")

    def holders(self) -> dict[str, set[str]]:
        """Devices by the UID of the living pod that has them, init containers' included."""
        active = self._active()
        return {
            uid: {each for one in containers.values() for held in one.values() for each in held.ids}
            for uid, containers in self._devices._state.held.items()
            if uid in active
        }
