"""Devices of running pods that pod-resources does not list.

A restarted kubelet lists a pod only after it has admitted it again; its checkpoint has all pods from
the start, and also pods that have ended. If the checkpoint is lost, the kubelet does not know of the
pods that still run, and would allocate their devices again. Such pods are known from the checkpoint
as it was before, and from the processes that the driver lists. A pod runs while its cgroup has a
process.

Design: docs/design/kubelet.md
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from agent import cgroups
from agent.allocations import Allocation, Forgotten, MigAddresses
from agent.backoff import StateLogger
from agent.bounded_files import text_or_empty
from agent.kubelet import checkpoint
from agent.kubelet.checkpoint import Entry
from agent.mig import orphans
from agent.other_plugins import Holding, is_certain
from agent.resources import table
from agent.resources.device_resource import ContainerDevices
from agent.sockets import Identity, identity
from protos import slicing
from protos.names import GPU
from protos.nearest import device_of
from protos.topology import Grant

log = logging.getLogger(__name__)

# Processes that serve others: the MPS server belongs to gpu-setup, and ends with its clients.
SERVERS = ("nvidia-cuda-mps", "nv-hostengine", "dcgm-exporter")
AllocationKey = tuple[str, str, str, tuple[str, ...]]  # pod UID, container, resource, device ids
Users = Mapping[str, Mapping[int, str]]  # pod UIDs by pid, by UUID of the GPU or slice


class UnlistedPods:
    """users: the processes on the GPUs, as of the last survey."""

    def __init__(
        self,
        plugins: Path,
        cgroup_root: Path,
        proc_root: Path = Path("/proc"),
        users: Callable[[], Users] = dict,
    ) -> None:
        self._plugins, self._root, self._proc = plugins, cgroup_root, proc_root
        self._users = users
        self._log = StateLogger(log)
        self._entries: tuple[Entry, ...] = ()  # of the checkpoint
        self._others: tuple[Entry, ...] = ()  # ... that other device plugins may have made
        self._kubelet: Identity = None
        self._known: dict[AllocationKey, Grant | None] = {}  # what the running kubelet has, or had
        # What former kubelets had, while pods run.
        self._before: dict[AllocationKey, Grant | None] = {}

    def read(self, listed: Iterable[Grant] | None) -> None:
        """Reads the checkpoint. listed is None if pod-resources does not answer."""
        try:
            found = checkpoint.read_all(self._plugins)
        except OSError as error:
            self._log.failed(str(error))
            found = checkpoint.Checkpoint()
        else:
            self._note(found.left_out)
        self._entries = tuple(each for each in found.entries if _is_own(each))
        self._others = tuple(
            each for each in found.entries if not is_certain(each.resource, each.device_ids)
        )
        kubelet = identity(self._plugins / "kubelet.sock")
        if kubelet is not None and kubelet != self._kubelet:
            self._before |= self._known
            self._known, self._kubelet = {}, kubelet
        names = {_devices(grant): grant for grant in listed or ()}
        here = {_key(each) for each in found.entries}
        kept = {key for key in self._known.keys() - here if cgroups.pod_runs(self._root, key[0])}
        self._known = {key: names.get(key[1:]) or self._known.get(key) for key in here | kept}
        known = {_devices(each) for each in found.entries} | names.keys()
        self._before = {
            key: grant
            for key, grant in self._before.items()
            if key[1:] not in known and cgroups.pod_runs(self._root, key[0])
        }

    def _note(self, left_out: tuple[str, ...]) -> None:
        more = f", and {len(left_out) - 1} more entries" if len(left_out) > 1 else ""
        if left_out:
            self._log.failed(f"left out: {left_out[0]}{more}")
        else:
            self._log.ok(f"the kubelet's checkpoint in {self._plugins} can be read")

    def recorded(self, allocation: Allocation) -> Entry | None:
        """The checkpoint's entry for the allocation, as of now."""
        try:
            entries = checkpoint.read(self._plugins)
        except OSError:
            return None
        wanted = (allocation.resource, allocation.device_ids)
        return next((each for each in entries if (each.resource, each.device_ids) == wanted), None)

    def runs(self, entry: Entry) -> bool:
        return cgroups.pod_runs(self._root, entry.uid)

    def allocations(
        self, listed: Iterable[Grant] | None, alive: Collection[str] = ()
    ) -> tuple[Allocation, ...]:
        """Returns the allocations that the checkpoint has and pod-resources does not. If pod-resources does not
        answer, every entry counts, else those of running pods and of those whose UIDs are in alive."""
        self.read(listed)
        shown = {_devices(grant) for grant in listed or ()}
        found = {
            Allocation(entry.resource, entry.device_ids, uid=entry.uid)
            for entry in self._entries
            if _devices(entry) not in shown
            and (listed is None or entry.uid in alive or self.runs(entry))
        }
        return tuple(sorted(found, key=lambda each: (each.resource, each.device_ids, each.uid)))

    def forgotten(self, listed: Iterable[Grant] | None) -> tuple[Forgotten, ...]:
        """Returns devices of running pods that the kubelet would allocate again, as of the last read()."""
        found = [
            Forgotten(resource, ids, _why(f"pod {_name(grant) or uid}"), grant)
            for (uid, _, resource, ids), grant in sorted(self._before.items(), key=str)
            if table.is_own(resource, ids)
        ]
        others = [(e.uid, _gpus((*e.device_ids, *e.visible()))) for e in self._others]
        held = {each for one in found for each in one.device_ids}
        held |= {each for grant in listed or () for each in grant.device_ids}
        for uuid, users in sorted(self._users().items()):
            owners = {each.uid for each in self._entries if uuid in _gpus(each.device_ids)}
            owners |= {uid for uid, gpus in others if uuid in gpus}
            if not owners and uuid in _gpus(held):
                continue  # known to the kubelet, or held back already
            if strangers := self._strangers(users, owners):
                pid, pod = strangers[0]
                resource = slicing.resource("") if uuid.startswith("MIG-") else GPU
                why = _why(f"process {pid} of pod {pod}")
                found.append(Forgotten(resource, (uuid,), why))
        return tuple(found)

    def others(self, listed: Iterable[ContainerDevices] | None) -> tuple[Holding, ...]:
        """Devices of running pods with ids of other device plugins, as of the last read(). Without a list every entry
        of the checkpoint counts."""
        # Ids of an ended pod may be a running pod's now: its entry comes last.
        entries = {_devices(each): each for each in sorted(self._others, key=self.runs)}
        found = {
            (row.container, *each): f"pod {row.namespace}/{row.pod}"
            for row in listed or ()
            for each in row.others
        }
        unlisted = {
            key: each.uid for key, each in entries.items() if listed is None or self.runs(each)
        }
        unlisted |= {key[1:]: key[0] for key in self._before if not table.is_own(*key[2:])}
        found = {key: f"pod {uid}" for key, uid in unlisted.items()} | found
        return tuple(
            Holding(who, *key[1:], entries[key].visible() if key in entries else ())
            for key, who in found.items()
        )

    def _strangers(self, users: Mapping[int, str], owners: set[str]) -> list[tuple[int, str]]:
        """The processes that still run and do not belong to the pods that have the device."""
        return sorted(
            (pid, pod)
            for pid, pod in users.items()
            if pod not in owners
            and cgroups.pod_of(self._proc, pid) == pod
            and not self._command(pid).startswith(SERVERS)
        )

    def _command(self, pid: int) -> str:
        return text_or_empty(self._proc / str(pid) / "comm")

    def addresses(self, slices: Iterable[str]) -> MigAddresses:
        """Addresses of slices that are gone, from the annotations of their containers."""
        return orphans.addresses([each.annotations() for each in self._entries], slices)


def _devices(one: Grant | Entry) -> tuple[str, str, tuple[str, ...]]:
    return (one.container, one.resource, one.device_ids)


def _key(entry: Entry) -> AllocationKey:
    return (entry.uid, *_devices(entry))


def _is_own(entry: Entry) -> bool:
    return table.is_own(entry.resource, entry.device_ids)


def _gpus(ids: Iterable[str]) -> set[str]:
    return set(map(device_of, ids))


def _name(grant: Grant | None) -> str:
    return f"{grant.namespace}/{grant.pod}" if grant else ""


def _why(who: str) -> str:
    return f"{who} uses it, but the kubelet does not list that any more"
