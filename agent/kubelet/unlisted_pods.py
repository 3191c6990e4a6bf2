"""GPUs of pods that pod-resources does not list though they run: for a while after a kubelet has
started it lists none of those that it has not admitted again, but its checkpoint has them all. The checkpoint also has
pods that ended; a pod that runs has a cgroup."""

import logging
from collections.abc import Iterable
from pathlib import Path

from agent import cgroups
from agent.allocations import Allocation, MigAddresses, uses_gpus
from agent.backoff import StateLogger
from agent.kubelet import checkpoint
from agent.mig import orphans
from protos.topology import Grant

log = logging.getLogger(__name__)


class UnlistedPods:
    def __init__(self, plugins: Path, cgroup_root: Path) -> None:
        self._plugins, self._root = plugins, cgroup_root
        self._log = StateLogger(log)

    def allocations(self, listed: Iterable[Grant] | None) -> tuple[Allocation, ...]:
        """None: pod-resources does not answer; then all that the checkpoint says is believed."""
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            self._log.failed(str(error))
            return ()
        shown = {(grant.container, grant.resource, grant.device_ids) for grant in listed or ()}
        found = {
            Allocation(entry.resource, entry.device_ids)
            for entry in entries
            if uses_gpus(entry.resource)
            and (entry.container, entry.resource, entry.device_ids) not in shown
            and (listed is None or cgroups.pod_exists(self._root, entry.uid))
        }
        return tuple(
            sorted(found, key=lambda allocation: (allocation.resource, allocation.device_ids))
        )

    def addresses(self, slices: Iterable[str]) -> MigAddresses:
        """Of slices that are not here any more, as their holders' containers were told."""
        try:
            return orphans.addresses(checkpoint.told(self._plugins), slices)
        except OSError as error:
            self._log.failed(str(error))
            return {}
