"""How the kubelet gives devices to the containers of one pod, written from the rules of its device
manager (Allocate and devicesToAllocate in pkg/kubelet/cm/devicemanager/manager.go, the same from
1.20 to 1.37), and what the best possible device plugin could reach. It shares no code with the agent.

1. Containers are served in order: init containers, then the others.
2. A container first takes devices that earlier init containers of its pod had and no container has
   kept: any of them, if there are more than it needs. The plugin is not asked then.
3. For the others it asks the plugin, which must include those of rule 2.
4. What a container gets is kept by it, except that the devices of an init container that ends can
   be reused. They stay allocated to the pod.
5. The devices of each container are in the checkpoint before the next container is served. Of init
   containers, pod-resources lists sidecars alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

Devices = frozenset[str]


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    size: int
    ends: bool = False  # an init container that is not restartable


@dataclass(slots=True)
class Kubelet:
    """prefer: (available, must include, size) -> devices; allocate: called with each choice; pick:
    which of several equal choices the kubelet takes (random in the real one); held: of each
    container, as in the checkpoint."""

    healthy: Devices
    prefer: Callable[[Devices, Devices, int], Devices]
    allocate: Callable[[Devices], None]
    pick: Callable[[Sequence[Devices]], Devices]
    kept: dict[str, Devices] = field(default_factory=dict)
    held: dict[str, Devices] = field(default_factory=dict)
    allocated: set[str] = field(default_factory=set)

    def admit(self, pod: Sequence[Container]) -> None:
        reusable: Devices = frozenset()
        for container in pod:
            if not container.size:
                continue
            chosen = self._choose(container.size, reusable)
            self.allocate(chosen)
            self.allocated |= chosen
            self.held[container.name] = chosen
            if container.ends:
                reusable |= chosen
            else:
                reusable -= chosen
                self.kept[container.name] = chosen

    def _choose(self, size: int, reusable: Devices) -> Devices:
        if len(reusable) >= size:
            return self.pick(subsets(reusable, size))
        available = self.healthy - self.allocated
        assert len(reusable) + len(available) >= size, "the pod does not fit"
        preferred = self.prefer(available | reusable, reusable, size) & available
        assert len(reusable | preferred) == size, "the kubelet would choose by itself"
        return reusable | preferred


def subsets(devices: Devices, size: int) -> list[Devices]:
    return [frozenset(each) for each in combinations(sorted(devices), size)]


def can_be_exact(pod: Sequence[Container], plan: dict[str, Devices], free: Devices) -> bool:
    """Whether a plugin that knows everything could make every container get its plan, whatever the
    kubelet picks."""

    def wins(position: int, reusable: Devices, left: Devices) -> bool:
        if position == len(pod):
            return True
        container = pod[position]

        def good(chosen: Devices) -> bool:
            if container.ends:
                return wins(position + 1, reusable | chosen, left - chosen)
            if chosen != plan[container.name]:
                return False
            return wins(position + 1, reusable - chosen, left - chosen)

        if len(reusable) >= container.size:
            return all(map(good, subsets(reusable, container.size)))
        more = subsets(left, container.size - len(reusable))
        return any(good(reusable | each) for each in more)

    return wins(0, frozenset(), free)


def effective(pod: Sequence[Container]) -> int:
    """The devices that the scheduler counts for the pod: each init container runs beside the
    sidecars that were started before it."""
    kept, most = 0, 0
    for container in pod:
        kept += 0 if container.ends else container.size
        most = max(most, kept + (container.size if container.ends else 0))
    return most


def every_choice(play: Callable[[Callable[[Sequence[Devices]], Devices]], None]) -> Iterator[None]:
    """Plays again and again, until every sequence of picks has been made."""
    script: list[int] = []
    while True:
        picks = _Picks(tuple(script))
        play(picks)
        yield
        taken = picks.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        script = [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1]


@dataclass(slots=True)
class _Picks:
    """Follows the script, then takes the first option."""

    script: tuple[int, ...]
    taken: list[tuple[int, int]] = field(default_factory=list)  # choice, number of options

    def __call__(self, options: Sequence[Devices]) -> Devices:
        position = len(self.taken)
        choice = self.script[position] if position < len(self.script) else 0
        self.taken.append((choice, len(options)))
        return options[choice]
