"""`lockstep job run`: a job from flags, or everything that files hold."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from central.commands.api import JOBS, Api, CannotDo, Json
from protos.names import GPU, TOPOLOGY_REQUIRED

MANIFESTS = (".yaml", ".yml", ".json")


def run(api: Api, args: argparse.Namespace) -> int:
    objects = list(_read(args.filename)) if args.filename else [from_flags(api, args)]
    if not objects:
        raise CannotDo(f"{args.filename}: it holds no object")
    if args.dry_run:
        print(yaml.safe_dump_all(objects, sort_keys=False), end="")
        return 0
    kinds = [api.kind_of(obj) for obj in objects]  # all are known before the first is made
    for kind, obj in zip(kinds, objects, strict=True):
        made = api.create(kind, obj)
        word = "run" if kind.api_version == JOBS.api_version else "create"
        print(f"{word} {kind.word} {made['metadata']['name']} successfully")
    return 0


def from_flags(api: Api, args: argparse.Namespace) -> Json:
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
    meta: Json = {"name": name, "namespace": api.namespace}
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


def _read(name: str) -> Iterator[Json]:
    """Every object in the file, in the folder's files, or in what is piped in (-)."""
    for where, text in _texts(name):
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark is not None else ""
            what = getattr(error, "problem", None) or "it is not YAML"
            raise CannotDo(f"{where}{line}: {what}") from error
        for place, document in enumerate(documents, 1):
            yield from _objects(f"{where}, document {place}", document)


def _texts(name: str) -> Iterator[tuple[str, str]]:
    if name == "-":
        yield "standard input", sys.stdin.read()
        return
    path = Path(name)
    try:
        inside = sorted(p for p in path.iterdir() if p.suffix in MANIFESTS) if path.is_dir() else []
        for file in inside or [path]:
            yield str(file), file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CannotDo(f"{name}: it is not text") from error
    except OSError as error:
        raise CannotDo(f"{name}: {error.strerror}") from error


def _objects(where: str, document: Any) -> Iterator[Json]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise CannotDo(f"{where}: it is no object, but {type(document).__name__}")
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _objects(where, item)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise CannotDo(f"{where}: {field} is missing")
    if not isinstance(document.get("metadata"), dict):
        raise CannotDo(f"{where}: metadata is missing")
    yield document
