"""`lockstep job run`: a job from flags, or everything that files hold."""

import argparse

import yaml

from central.cli.jobs.api import JOBS, Api, CannotDo
from central.kube.decode import job_decoder
from central.kube.errors import MalformedObject
from central.model.json_types import Json
from protos.names import GPU, TOPOLOGY_REQUIRED


def run(api: Api, args: argparse.Namespace) -> int:
    objects = meant(api.namespace, args)
    kinds = [api.kind_of(obj) for obj in objects]  # all are known before the first is made
    for kind, obj in zip(kinds, objects, strict=True):
        made = api.create(kind, obj)
        word = "run" if kind.api_version == JOBS.api_version else "create"
        print(f"{word} {kind.singular} {made['metadata']['name']} successfully")
    return 0


def show(namespace: str, args: argparse.Namespace) -> int:
    """What would be made; no server is asked."""
    print(yaml.safe_dump_all(meant(namespace, args), sort_keys=False), end="")
    return 0


def meant(namespace: str, args: argparse.Namespace) -> list[Json]:
    """Raises CannotDo for a Job that could never run."""
    objects: list[Json] = args.objects if args.filename else [from_flags(namespace, args)]
    for obj in objects:
        _check(namespace, obj)
    return objects


def _check(namespace: str, obj: Json) -> None:
    """A Job that the centre would only keep waiting is refused here and now, with the centre's words."""
    if (obj["apiVersion"], obj["kind"]) != (JOBS.api_version, JOBS.kind):
        return
    meta = obj["metadata"]
    name = str(meta.get("name") or meta.get("generateName") or "")
    where = {"namespace": namespace, **meta, "name": name}
    try:
        wrong = job_decoder.decode_job({**obj, "metadata": where}).error
    except MalformedObject as error:
        wrong = str(error)
    if wrong:
        raise CannotDo(f"job {name}: {wrong}")


def from_flags(namespace: str, args: argparse.Namespace) -> Json:
    name = args.chosen
    container: Json = {"name": "main", "image": args.image}
    if args.words:
        container["command"] = args.words
    requests, limits = dict(args.requests), dict(args.limits)
    if args.gpus:
        limits[GPU] = str(args.gpus)
    container["resources"] = {"requests": requests} | ({"limits": limits} if limits else {})
    if args.env:
        container["env"] = [{"name": key, "value": value} for key, value in args.env]
    least = args.replicas if args.min is None else args.min
    if least > args.replicas:
        raise CannotDo(f"--min {least} is more than --replicas {args.replicas}")
    meta: Json = {"name": name, "namespace": namespace}
    if args.within:
        meta["annotations"] = {TOPOLOGY_REQUIRED: args.within}
    spec: Json = {"schedulerName": args.scheduler, "minAvailable": least, "queue": args.queue}
    if args.priority:
        spec["priorityClassName"] = args.priority
    if args.plugin:
        spec["plugins"] = {plugin: [] for plugin in args.plugin}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec["tasks"] = [{"name": args.task, "replicas": args.replicas, "template": template}]
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": meta, "spec": spec}
