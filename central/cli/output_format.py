"""The formats of -o, the same words for every command."""

import argparse
import json
from typing import Any

from central.server import argtypes

OBJECTS = ("table", "wide", "json", "yaml", "name")  # of commands that show objects
WHOLE = ("json", "yaml")
FIGURES = ("table", "json", "yaml")  # of commands that show results


def add(parser: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    argtypes.add_flag(parser, "-o --output", "output format", choices=formats, default="table")


def written(found: Any, output: str) -> str:
    """Formats an object as JSON or YAML, like kubectl -o. found: any JSON value."""
    if output == "json":
        return json.dumps(found, indent=2) + "\n"
    import yaml

    return str(yaml.safe_dump(found, sort_keys=False))
