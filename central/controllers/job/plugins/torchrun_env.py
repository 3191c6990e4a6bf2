"""torchrun's options as variables (PET_NNODES is --nnodes), so that `torchrun train.py` needs no flag."""

from collections.abc import Mapping

from central.controllers.job.plugins.pod_edits import Change, entries
from central.model.json_types import Json
from protos.names import GPU, OTHER_GPUS
from protos.slicing import is_slice

_GPUS = {GPU, *OTHER_GPUS}


def options(variables: Mapping[str, str]) -> Change:
    """Adds them with PET_NPROC_PER_NODE, one process for each GPU of the container. Variables that the container
    sets itself stay as they are."""

    def change(container: Json) -> Json:
        given = {one.get("name") for one in container.get("env") or ()}
        mine = {"PET_NPROC_PER_NODE": str(max(1, gpus(container))), **variables}
        added = [
            {"name": name, "value": value} for name, value in mine.items() if name not in given
        ]
        return entries(added)(container)

    return change


def gpus(container: Json) -> int:
    """Whole GPUs and MIG slices in its limits. A share of a GPU is none."""
    limits = (container.get("resources") or {}).get("limits") or {}
    amounts = [str(n) for name, n in limits.items() if name in _GPUS or is_slice(name)]
    return sum(int(amount) for amount in amounts if amount.isascii() and amount.isdigit())
