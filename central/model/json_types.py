"""The types of parsed JSON objects, such as a Kubernetes object or a part of one."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
ReadOnlyJson = Mapping[str, Any]  # inside facts, which are shared and must not change
