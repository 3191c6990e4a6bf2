"""Gangs without a PodGroup: what the labels and annotations of pods and of their controllers say, and
which controller a pod belongs to."""

from central.kube.decode.fields import (
    DECODE_ERRORS,
    INT32_MAX,
    FieldError,
    error_text,
    identifying,
    text_field,
)
from central.kube.decode.topology_constraints import highest_tier
from central.model.facts import OwnerSeen
from central.model.json_types import Json
from protos import names

# Controllers whose pods join the gang of the controller above them, unless that is one of these kinds.
# All ReplicaSets of a Deployment are one gang, and so are the Jobs of one JobSet or MPIJob. Each Job of a
# CronJob is a gang of its own, and so is a StatefulSet.
INTERMEDIATE = {"ReplicaSet": (), "Job": ("CronJob",)}


def gang_of(labels: Json, annotations: Json, meta: Json) -> tuple[str, int | None, str, str, str]:
    """The gang's name and minimum, as far as the pod itself gives them; the uid and name of the
    controller that may give the rest; and the first error."""
    for key in names.GROUP_NAMES:
        if group := text_field(annotations, key):
            return group, None, "", "", ""
    gang, least, error = text_field(labels, names.GANG_LABEL), None, ""
    try:
        least = min_member(labels, annotations)
    except FieldError as unread:
        error = str(unread)
    if gang:
        return gang, least, "", "", error
    uid, name = controller_of(meta)
    if least is not None and not uid:
        error = f"annotation {names.GANG_MIN}: the pod has no controller, and no label {names.GANG_LABEL}"
        least = None
    return "", least, uid, name, error


def min_member(labels: Json, annotations: Json) -> int | None:
    """The minimum of a gang without a PodGroup. Raises FieldError."""
    for key, value in (
        (names.GANG_MIN, annotations.get(names.GANG_MIN, labels.get(names.GANG_MIN))),
        (names.OWNER_MIN, annotations.get(names.OWNER_MIN)),
    ):
        if value is not None:
            digits = str(value)
            if digits.isascii() and digits.isdigit() and 0 < int(digits[:11]) <= INT32_MAX:
                return int(digits)
            raise FieldError(f'annotation {key}: "{digits}" is not a positive whole number')
    return None


def controller_of(meta: Json) -> tuple[str, str]:
    """The controller's uid, and its name as job/train; both empty if there is none."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = text_field(owner, "kind"), text_field(owner, "name")
            return text_field(owner, "uid"), f"{kind.lower()}/{name}"
    return "", ""


def decode_owner(kind: str, raw: Json, levels: frozenset[str]) -> OwnerSeen:
    """levels: what topology-required may name."""
    with identifying(kind, raw):
        meta = raw["metadata"]
        uid, name = meta["uid"], f"{kind.lower()}/{meta['name']}"
    try:
        annotations = meta.get("annotations") or {}
        required = text_field(annotations, names.TOPOLOGY_REQUIRED)
        if required and required not in levels:
            field = f"annotation {names.TOPOLOGY_REQUIRED}"
            raise FieldError(f'{field}: "{required}" is not a level of the network tree')
        return OwnerSeen(
            uid,
            name,
            _above(kind, meta),
            min_member(meta.get("labels") or {}, annotations),
            text_field(annotations, names.QUEUE_NAME),
            required,
            highest_tier(annotations),
        )
    except DECODE_ERRORS as error:
        return OwnerSeen(uid, name, error=f"{name}: {error_text(error)}")


def _above(kind: str, meta: Json) -> str:
    """The controller whose gang the pods join instead; "" if they are this controller's gang."""
    if kind not in INTERMEDIATE:
        return ""
    _, name = controller_of(meta)
    return "" if name.startswith(tuple(f"{top.lower()}/" for top in INTERMEDIATE[kind])) else name
