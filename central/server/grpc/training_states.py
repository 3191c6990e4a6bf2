"""Keeps the coordinators' states in ConfigMaps of their Jobs: a few threads, bounded, because each call waits for the
API server.

Design: docs/design/coordinator.md
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc

from central.controllers.job.training_plan import TrainingPlan
from central.kube.transport.http_client import Client
from central.kube.write import progress_map
from central.kube.write.progress_map import NotStored, OtherCoordinator, Progress, ProgressOf
from central.kube.write.retrying import Retry
from central.server.grpc.auth import CallRefused
from central.server.grpc.rates import PeerRates, Rate
from protos.stubs import fleet_pb2 as pb

Found = TypeVar("Found")
WRITERS = 4  # threads
CALLS = 64  # waiting
SAVES = Rate(1.0, 3), Rate(20.0, 40)  # per coordinator, in all
LOADS = Rate(0.5, 5), Rate(20.0, 100)
_KNOWN_MOST = 4096


class TrainingStates:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(WRITERS, thread_name_prefix="progress")
        self._saves, self._loads = PeerRates(*SAVES), PeerRates(*LOADS)
        self._calls = 0
        self._versions: OrderedDict[str, str] = OrderedDict()  # of ConfigMaps, by pod uid

    async def load(self, plan: TrainingPlan, pod: str) -> pb.StateReply:
        """Raises CallRefused."""
        _take(self._loads, pod)
        job = _of(plan)
        found = await self._call(lambda: progress_map.load(self._client, job))
        return pb.StateReply(run=found.run, state=found.state) if found else pb.StateReply()

    async def save(self, request: pb.StateUpdate, plan: TrainingPlan, pod: str) -> pb.StateAck:
        """Raises CallRefused."""
        if not 0 < request.run <= progress_map.MOST_RUN:
            why = f"run: must be from 1 to {progress_map.MOST_RUN}"
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, why)
        _take(self._saves, pod)
        progress, version = Progress(request.run, pod, request.state), self._versions.get(pod, "")
        job = _of(plan)
        known = await self._call(lambda: progress_map.save(self._client, job, progress, version))
        self._versions[pod] = known
        self._versions.move_to_end(pod)
        if len(self._versions) > _KNOWN_MOST:
            self._versions.popitem(last=False)
        return pb.StateAck()

    async def _call(self, work: Callable[[], Found]) -> Found:
        if self._calls >= CALLS:
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many states are written")
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Retry as error:
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, f"the API server: {error.why}") from None
        except NotStored as error:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except OtherCoordinator as error:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        finally:
            self._calls -= 1


def _take(rates: PeerRates, pod: str) -> None:
    if not rates.take(pod, time.monotonic()):
        raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "states are written too often")


def _of(plan: TrainingPlan) -> ProgressOf:
    return ProgressOf(plan.namespace, plan.name, plan.uid)
