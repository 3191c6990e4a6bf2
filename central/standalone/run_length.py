"""The run times of pods in the demo, where no container starts. Pure."""

import re
from typing import Any

from central.model.json_types import Json
from central.standalone.pod_status import runs_for_s

UNKNOWN_S = 10.0  # of a program of which nothing is known
LONGEST_S = 60.0  # of a program that sleeps for longer
SLEEP = re.compile(r"\bsleep\s+([0-9]+(?:\.[0-9]+)?|infinity)")


def demo_run_s(pod: Json) -> float | None:
    """Returns the time in the annotation lockstep.dev/runs-for, else that of the last `sleep` in its command, a
    minute at most, else UNKNOWN_S. None if it runs until it is deleted, as does a pod whose containers are always
    restarted. Raises ValueError."""
    given = runs_for_s(pod)
    if given is not None:
        return given
    spec = pod["spec"]
    if spec.get("restartPolicy", "Always") == "Always":
        return None
    lengths = [_sleeps(container) for container in spec["containers"]]
    known = [each for each in lengths if each is not None]
    return min(LONGEST_S, max(known)) if known else UNKNOWN_S


def _sleeps(container: Any) -> float | None:
    words = " ".join(str(word) for key in ("command", "args") for word in container.get(key) or ())
    found = SLEEP.findall(words)
    if not found:
        return None
    return LONGEST_S if found[-1] == "infinity" else float(found[-1])
