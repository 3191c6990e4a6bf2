"""The scheduler's own knowledge of a job: the GPUs of its pods, its place in the queue, its expected start.

The scheduler is asked if --server or LOCKSTEP_SERVER names it; commands for jobs work without it."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from central.server.grpc import query_client

if TYPE_CHECKING:
    from protos.stubs import fleet_pb2 as pb


@dataclass(frozen=True, slots=True)
class SchedulerView:
    gpus: Mapping[str, str] = field(default_factory=dict)  # by pod, such as 0,1 or 2,3 (planned)
    standing: str = ""  # , place 3 of 12
    start: str = ""  # expected
    size: str = ""  # of an elastic job: why it is not larger, and what its coordinator reports
    training: "pb.TrainingView | None" = None  # None: no coordinator reports
    trouble: str = ""  # why the scheduler did not answer


NOT_ASKED = SchedulerView()


def asked_of_scheduler(args: argparse.Namespace, namespace: str, job: str) -> SchedulerView:
    if args.server == query_client.SERVER:
        return NOT_ASKED
    try:
        reply = query_client.explain(query_client.scheduler_address(args), namespace, f"job/{job}")
    except query_client.CannotAsk as error:
        return SchedulerView(trouble=str(error))
    if not reply.found:
        return NOT_ASKED
    gpus = {
        pod.name: ",".join(map(str, pod.gpus)) + ("" if pod.confirmed else " (planned)")
        for pod in reply.pods
        if pod.gpus
    }
    standing = f", place {reply.place} of {reply.pending}" if reply.place else ""
    start = ""
    if reply.start:
        start = f"{datetime.fromtimestamp(reply.start).astimezone():%Y-%m-%d %H:%M:%S%z}"
    training = reply.training if reply.HasField("training") else None
    return SchedulerView(gpus, standing, start, reply.size, training)
