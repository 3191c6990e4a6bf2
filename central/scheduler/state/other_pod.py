"""A pending pod of another scheduler, as a claimant for surplus of elastic gangs. It is in no queue and in no list of
gangs: it is neither placed nor evicted here."""

from central.model.redaction import qualified
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang


class OtherPod(Gang):
    __slots__ = ()

    def __init__(self, pod: Pod) -> None:
        super().__init__((pod.seen.namespace, pod.seen.name, False))
        self.members = {pod.seen.uid: pod}

    @property
    def display_name(self) -> str:
        return f"pod {self.name} of another scheduler"

    @property
    def qualified_name(self) -> str:
        return f"{qualified(self.namespace, self.name, 'pod')} of another scheduler"

    @property
    def priority(self) -> int:
        return next(iter(self.members.values())).seen.priority
