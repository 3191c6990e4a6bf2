"""Objects as JSON or YAML, as kubectl -o writes them."""

import json

import yaml

from central.model.json_types import Json


def written(obj: Json, output: str) -> str:
    if output == "json":
        return json.dumps(obj, indent=2) + "\n"
    return str(yaml.safe_dump(obj, sort_keys=False))
