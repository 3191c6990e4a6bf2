"""A cluster in local processes whose API server has faults, and whose scheduler can be killed."""

from typing import Any

from central.standalone.local_cluster import PATIENCE_S, LocalCluster
from protos.common.child_process import wait_or_kill
from tests.fakes.faulty_api import Faults, FaultyApi, no_faults
from tests.fakes.hollow_nodes import HollowNodes


class FaultyCluster(LocalCluster):
    nodes_class = HollowNodes
    api: FaultyApi
    hollow: HollowNodes

    def __init__(self, *given: Any, faults: Faults = no_faults, **more: Any) -> None:
        super().__init__(*given, **more)
        self._faults = faults

    def new_api(self) -> FaultyApi:
        return FaultyApi(port=self._port, faults=self._faults)

    @property
    def scheduler_pid(self) -> int:
        assert self._scheduler is not None
        return self._scheduler.pid

    def kill_scheduler(self) -> None:
        """Kills the scheduler, as a power failure of its node would."""
        if self._scheduler is not None:
            self._scheduler.kill()
            wait_or_kill(self._scheduler, PATIENCE_S)
            self._scheduler = None
