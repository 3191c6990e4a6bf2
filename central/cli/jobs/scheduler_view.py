"""The scheduler's own knowledge of a job: the GPUs of its pods, its place in the queue, its expected start.

The scheduler is asked if --server or LOCKSTEP_SERVER names it; commands for jobs work without it."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from central.model.json_types import Json
from central.server.grpc import query_client
from protos.names import GPU

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
DEFAULT = "default"


def gpus_of_default(args: argparse.Namespace) -> Json | None:
    """Returns the use of the queue default in the form of a Queue's status. None if the scheduler is not named, does
    not answer, or does not show everything."""
    if args.server == query_client.SERVER:
        return None
    try:
        return use_of_default(query_client.topology(query_client.scheduler_address(args), ""))
    except query_client.CannotAsk:
        return None


def use_of_default(reply: "pb.TopologyReply") -> Json | None:
    """GPUs and shares, without MIG slices."""
    holders = [holder for node in reply.nodes for holder in node.holders]
    hidden = any(node.hidden_holders for node in reply.nodes)
    if hidden or (holders and not any(holder.queue for holder in holders)):  # an older scheduler
        return None
    used = sum(
        holder.share / 100 if holder.share else len(holder.gpus)
        for holder in holders
        if holder.queue == DEFAULT
    )
    return {GPU: f"{used:g}"}


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
