"""`lockstep job run`: a job from flags, or every object of manifests."""

import argparse
import sys
from functools import partial
from pathlib import Path

import yaml

from central.cli import terminal_table
from central.cli.exit_codes import CannotDo
from central.cli.jobs import follow
from central.cli.jobs.api import JOBS, Api, named
from central.cli.jobs.job_warnings import warnings
from central.kube.decode import job_decoder
from central.kube.decode.fields import MalformedObject
from central.model.json_types import Json
from protos.names import GPU, GPU_MODEL, RUNS_FOR, TIME_LIMIT, TOPOLOGY_REQUIRED

MOST_TEXT = 64 << 20  # characters of all files; the API server takes 3 MiB of an object
MANIFESTS = (".yaml", ".yml", ".json")


def run(api: Api, args: argparse.Namespace) -> int:
    objects = objects_of(api.namespace, args)
    kinds = [api.kind_of(obj) for obj in objects]  # fails before anything is created
    warned = [list(warnings(api, obj)) if _is_job(obj) else [] for obj in objects]
    if args.wait and (first := next(filter(None, warned), None)):
        raise CannotDo(f"{first[0]}; nothing was created")
    if args.follow and sum(map(_is_job, objects)) != 1:
        raise CannotDo("--follow takes one job; nothing was created")
    jobs: list[tuple[Api, str]] = []
    for kind, obj, sentences in zip(kinds, objects, warned, strict=True):
        for warning in sentences:
            print(terminal_table.printable(f"lockstep: warning: {warning}"), file=sys.stderr)
        made = api.create(kind, obj)
        meta = made["metadata"]
        print(f"{named(kind, meta.get('namespace', ''), meta['name'])} created", flush=True)
        jobs += [(api.within(meta["namespace"]), meta["name"])] if _is_job(obj) else []
    if args.follow:
        return _follow(*jobs[0])
    return _wait(jobs) if args.wait else 0


def _follow(api: Api, name: str) -> int:
    """The output of one job until it ends; then 0 if it is Completed, else 1."""
    options = argparse.Namespace(
        chosen=name, follow=True, task="", container="", tail=None, timestamps=False, previous=False
    )  # fmt: skip
    follow.logs(api, options)
    return follow.watch_job(api, name, lambda _: None)


def _wait(jobs: list[tuple[Api, str]]) -> int:
    """0 if all are Completed, else 1. Says what each waits for."""
    codes = [0]
    for api, name in jobs:
        head = f"job {name}: " if len(jobs) > 1 else ""
        say = partial(_say, head)
        codes.append(follow.watch_job(api, name, say, until_never=True))
    return max(codes)


def _say(head: str, line: str) -> None:
    print(terminal_table.printable(head + line), flush=True)


def _is_job(obj: Json) -> bool:
    return (obj["apiVersion"], obj["kind"]) == (JOBS.api_version, JOBS.kind)


def show(namespace: str, args: argparse.Namespace) -> int:
    """Prints what run() would create, without any server."""
    print(yaml.safe_dump_all(objects_of(namespace, args), sort_keys=False), end="")
    return 0


def objects_of(namespace: str, args: argparse.Namespace) -> list[Json]:
    """Raises CannotDo for an invalid Job."""
    objects: list[Json] = args.objects if args.filename else [_from_flags(namespace, args)]
    where = f"{args.filename}: " if args.filename else ""
    for obj in objects:
        _check(namespace, obj, where)
    return objects


def _check(namespace: str, obj: Json, file: str) -> None:
    """Refuses a Job that the scheduler would leave pending as invalid, with the same message."""
    if not _is_job(obj):
        return
    meta = obj["metadata"]
    name = str(meta.get("name") or meta.get("generateName") or "")
    where = {"namespace": namespace, **meta, "name": name}
    try:
        wrong = job_decoder.decode_job({**obj, "metadata": where}).error
    except MalformedObject as error:
        wrong = str(error)
    if wrong:
        raise CannotDo(f"{file}job {name:.253}: {wrong}")


def _from_flags(namespace: str, args: argparse.Namespace) -> Json:
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
    runs_for = args.runs_for or args.time_limit
    named = {TOPOLOGY_REQUIRED: args.within, RUNS_FOR: runs_for, TIME_LIMIT: args.time_limit}
    annotations = dict(args.annotation) | {key: value for key, value in named.items() if value}
    if annotations:
        meta["annotations"] = annotations
    spec: Json = {"schedulerName": args.scheduler, "minAvailable": least, "queue": args.queue}
    if args.priority:
        spec["priorityClassName"] = args.priority
    if args.plugin:
        spec["plugins"] = {plugin: [] for plugin in args.plugin}
    pod: Json = {"restartPolicy": "Never", "containers": [container]}
    if mounts := _mounts(pod, args):
        container["volumeMounts"] = mounts
    template: Json = {"spec": pod}
    if args.gpu_model:
        template["metadata"] = {"annotations": {GPU_MODEL: args.gpu_model}}
    spec["tasks"] = [{"name": args.task, "replicas": args.replicas, "template": template}]
    return JOBS.body(metadata=meta, spec=spec)


def _mounts(pod: Json, args: argparse.Namespace) -> list[Json]:
    """Adds the volumes of --volume and --shm to the pod. Returns where its container mounts them."""
    volumes, mounts = [], []
    for number, (claim, path, read_only) in enumerate(args.volume):
        volumes.append({"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append(
            {"name": f"v{number}", "mountPath": path} | ({"readOnly": True} if read_only else {})
        )
    if args.shm:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": args.shm}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if volumes:
        pod["volumes"] = volumes
    return mounts


def read(name: str) -> list[Json]:
    """Every object in the file, in the directory's manifests, or on standard input (-)."""
    from central.simulator import documents

    found, names = list[Json](), [name]
    try:
        if name != "-" and Path(name).is_dir():
            names = sorted(str(each) for each in Path(name).iterdir() if each.suffix in MANIFESTS)
            if not names:
                raise CannotDo(f"{name}: contains no file that ends in {', '.join(MANIFESTS)}")
        for where, document in documents.read(names, MOST_TEXT):
            for field, kind in (("apiVersion", str), ("kind", str), ("metadata", dict)):
                if not isinstance(document.get(field), kind):
                    raise CannotDo(f"{where}: {field} is missing")
            found.append(document)
    except OSError as error:
        raise CannotDo(f"{name}: {error.strerror}") from error
    except documents.BadInput as error:
        raise CannotDo(str(error)) from error
    if not found:
        raise CannotDo(f"{name}: contains no object")
    return found
