"""A pod-resources client whose answer a test sets, without a kubelet."""

from agent.kubelet.pod_resources import PodResourcesClient
from agent.resources.device_resource import ContainerDevices


class PodResources(PodResourcesClient):
    """rows: what it lists; None: it does not answer."""

    rows: tuple[ContainerDevices, ...] | None = ()
    calls = 0

    def list(self, time_s: float) -> tuple[ContainerDevices, ...]:
        self.calls += 1
        if self.rows is None:
            raise OSError("no answer")
        return self.rows
