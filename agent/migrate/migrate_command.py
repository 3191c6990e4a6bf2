"""The command `lockstep-agent migrate`: prints what the configuration of another device plugin, and
the pods that use it, become. It changes nothing. The exit code is 1 if something has no equivalent."""

import argparse
import errno
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.bounded_files import parsed, read_text
from agent.machine.facts import Unusable
from agent.migrate.translate import PluginConfig, PodChange, plugin_config, pod
from protos.names import GPU_SHARE
from protos.printing import printable

MOST_BYTES = 64 << 20  # of a file
MOST_VALUES = 1_000_000  # of a document
Json = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="configuration of NVIDIA's device plugin, or its ConfigMap; manifests of pods and of "
        "their controllers; JSON as of `kubectl get -o json`, or YAML where PyYAML is installed; -: "
        "standard input",
    )
    parser.add_argument(
        "--gpu-memory",
        type=int,
        default=0,
        metavar="MIB",
        help="memory of one GPU in MiB, to turn HAMi's nvidia.com/gpumem into hundredths",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="output format (default %(default)s)",
    )


def run(given: argparse.Namespace) -> int:
    """Raises Unusable."""
    documents = [each for name in given.files for each in _documents(name)]
    configs = {name: found for name, each in documents for name, found in _configs(each, name)}
    shared = next((each for each in configs.values() if each.share), None)
    pods: dict[str, list[PodChange]] = {}
    for name, each in documents:
        for title, manifest in _pods(each, name):
            try:
                changes = list(pod(manifest, shared, given.gpu_memory))
            except Unusable as error:
                raise Unusable(f"{name}: {title}: {error}") from None
            if changes:
                pods[title] = changes
    if given.output == "json":
        rows = {title: [asdict(each) for each in changes] for title, changes in pods.items()}
        plain = {name: asdict(each) for name, each in configs.items()}
        print(json.dumps({"configs": plain, "pods": rows}, indent=2))
    else:
        sys.stdout.write("\n".join([*map(printable, _text(configs, pods)), ""]))
    lost = any(each.lost for each in configs.values())
    return int(lost or any(each.lost for changes in pods.values() for each in changes))


def _text(
    configs: Mapping[str, PluginConfig], pods: Mapping[str, list[PodChange]]
) -> Iterator[str]:
    if not configs and not pods:
        yield "nothing to change: no configuration of a device plugin, and no pod that shares GPUs"
    for name, config in configs.items():
        yield f"{name}:"
        if config.sharing:
            yield f'  ConfigMap lockstep-sharing, key default or the node\'s name: "{config.sharing}"'
            yield f"  pods: {config.resource}: 1 becomes {GPU_SHARE}: {config.share}"
        for component in config.components:
            yield f"  daemonset/kustomization.yaml: components/{component}"
        for flag in config.flags:
            yield f"  the agent's arguments: {flag}"
        for note in config.notes:
            yield f"  note: {note}"
        for setting in config.lost:
            yield f"  no equivalent: {setting}"
        changed = config.sharing or config.components or config.flags
        if not (changed or config.notes or config.lost):
            yield "  nothing to change"
    for title, changes in pods.items():
        yield f"{title}:"
        for change in changes:
            yield f"  {change.where}: {change.before} -> {change.after}"


def _documents(name: str) -> Iterator[tuple[str, Json]]:
    try:
        text = _standard_input() if name == "-" else read_text(Path(name), MOST_BYTES)
    except OSError as error:
        raise Unusable(f"{name} can't be read: {error.strerror}") from None
    for found in _parsed(text, name):
        if isinstance(found, Mapping):
            items = found.get("items") if str(found.get("kind", "")).endswith("List") else None
            for each in items if isinstance(items, list) else [found]:
                if not isinstance(each, Mapping):
                    raise Unusable(f"{name}: items: an entry is not an object")
                yield name, each
        elif found is not None:
            raise Unusable(f"{name}: a document is not an object")


def _standard_input() -> str:
    """Raises OSError."""
    try:
        text = sys.stdin.read(MOST_BYTES + 1)
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "not UTF-8 text") from None
    if len(text) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES >> 20} MiB")
    return text


def _parsed(text: str, name: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        try:
            return [parsed(text)]
        except ValueError as error:
            raise Unusable(f"{name}: not JSON: {error}") from None
    try:
        import yaml  # not in the agent's image
    except ImportError:
        raise Unusable(f"{name}: reading YAML needs PyYAML; give JSON, or install it") from None
    try:
        return list(yaml.safe_load_all(text))
    except RecursionError:
        raise Unusable(f"{name}: not YAML: nested too deeply") from None
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
    ) as error:  # a date such as 2026-99-99, a key that is a list
        raise Unusable(f"{name}: not YAML: {error}") from None


def _configs(document: Json, name: str) -> Iterator[tuple[str, PluginConfig]]:
    if document.get("kind") == "ConfigMap":
        data = document.get("data") or {}
        if not isinstance(data, Mapping):
            raise Unusable(f"{name}: data: not a mapping")
        for key, text in data.items():
            title = f"{_title(document)}, {key}"
            for found in _parsed(str(text), title):
                if isinstance(found, Mapping) and _is_config(found):
                    yield title, plugin_config(found, title)
    elif _is_config(document):
        yield name, plugin_config(document, name)


def _is_config(document: Json) -> bool:
    keys = {"flags", "sharing", "resources", "imex"}
    return "kind" not in document and "version" in document and bool(keys & document.keys())


def _pods(document: Json, name: str) -> Iterator[tuple[str, Json]]:
    """Yields pods, and the pod templates of other objects, wherever they stand in the manifest."""
    if document.get("kind") == "Pod":
        yield _title(document), document
        return
    found: list[Any] = [document.get("spec")]
    looked = 0  # aliases make a document larger than it looks
    while found:
        each = found.pop()
        looked += 1
        if looked > MOST_VALUES:
            raise Unusable(f"{name}: a document has more than {MOST_VALUES} values")
        if isinstance(each, list):
            found += each
        elif isinstance(each, Mapping):
            template = each.get("template")
            if isinstance(template, Mapping) and "spec" in template:
                yield _title(document), template
            else:
                found += each.values()


def _title(document: Json) -> str:
    given = document.get("metadata")
    meta = given if isinstance(given, Mapping) else {}
    space = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{document.get('kind', '?')} {space}{meta.get('name', '?')}"
