"""GPUs of running pods that pod-resources does not list. A restarted kubelet lists a pod only after
it has admitted it again; its checkpoint has all pods from the start, and also pods that have ended.
A pod that runs has a cgroup."""

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
        """listed is None if pod-resources does not answer; then every entry of the checkpoint
        counts."""
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
        """Addresses of slices that are gone, from the annotations of their containers."""
        try:
            return orphans.addresses(checkpoint.annotations(self._plugins), slices)
        except OSError as error:
            self._log.failed(str(error))
            return {}
