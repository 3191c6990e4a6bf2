"""What pods and their controllers say of gangs without an object: labels, annotations, and who controls
whom. Pure."""

from central.kube.errors import (
    DECODE_ERRORS,
    FieldError,
    MalformedObject,
    error_text,
    object_name,
    text_field,
)
from central.model.facts import OwnerSeen
from central.model.json_types import Json
from protos import names

# A new ReplicaSet of a Deployment is the same gang, and so are the Jobs of one JobSet or MPIJob. What
# belongs to a CronJob is a gang each time; a StatefulSet is one by itself.
PARTS = {"ReplicaSet": (), "Job": ("CronJob",)}
_MOST = 2**31 - 1


def gang_of(labels: Json, annotations: Json, meta: Json) -> tuple[str, int | None, str, str, str]:
    """The gang's name and its minimum where the pod tells them, the uid and name of a controller that
    may tell more, and what is wrong."""
    for key in names.GROUP_NAMES:
        if group := text_field(annotations, key):
            return group, None, "", "", ""
    gang, least, wrong = text_field(labels, names.GANG_LABEL), None, ""
    try:
        least = min_member(labels, annotations)
    except FieldError as error:
        wrong = str(error)
    if gang:
        return gang, least, "", "", wrong
    uid, name = controller_of(meta)
    if least is not None and not uid:
        wrong = f"annotation {names.GANG_MIN}: the pod has no controller, and no label {names.GANG_LABEL}"
        least = None
    return "", least, uid, name, wrong


def tier_of(annotations: Json) -> tuple[int | None, str]:
    try:
        return highest_tier(annotations), ""
    except FieldError as error:
        return None, str(error)


def min_member(labels: Json, annotations: Json) -> int | None:
    """The minimum of a gang without an object. Raises Unreadable."""
    for key, told in (
        (names.GANG_MIN, annotations.get(names.GANG_MIN, labels.get(names.GANG_MIN))),
        (names.OWNER_MIN, annotations.get(names.OWNER_MIN)),
    ):
        if told is not None:
            found = str(told)
            if found.isascii() and found.isdigit() and 0 < int(found[:11]) <= _MOST:
                return int(found)
            raise FieldError(f'annotation {key}: "{found}" is not a positive whole number')
    return None


def highest_tier(annotations: Json) -> int | None:
    """The highest tier that a gang may span, as Volcano's annotations say it. Raises Unreadable."""
    mode = annotations.get(names.TOPOLOGY_MODE)
    if mode not in (None, "hard", "soft"):
        raise FieldError(f'annotation {names.TOPOLOGY_MODE}: "{mode}" is neither hard nor soft')
    told = annotations.get(names.TOPOLOGY_TIER)
    if told is None:
        return None
    if not (str(told).isascii() and str(told).isdigit()) or len(str(told)) > 4:
        raise FieldError(f'annotation {names.TOPOLOGY_TIER}: "{told}" is not a whole number')
    return None if mode == "soft" else int(told)


def controller_of(meta: Json) -> tuple[str, str]:
    """Its uid, and its name as job/train; empty: nobody."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return text_field(
                owner, "uid"
            ), f"{text_field(owner, 'kind').lower()}/{text_field(owner, 'name')}"
    return "", ""


def decode_owner(kind: str, raw: Json, topology: frozenset[str]) -> OwnerSeen:
    """closeness: what topology-required may name."""
    try:
        meta = raw["metadata"]
        uid, name = meta["uid"], f"{kind.lower()}/{meta['name']}"
    except DECODE_ERRORS as error:
        raise MalformedObject(f"{kind} {object_name(raw)}: {error_text(error)}") from error
    try:
        annotations = meta.get("annotations") or {}
        required = text_field(annotations, names.TOPOLOGY_REQUIRED)
        if required and required not in topology:
            field = f"annotation {names.TOPOLOGY_REQUIRED}"
            raise FieldError(f'{field}: "{required}" is no level of the network tree')
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
    if kind not in PARTS:
        return ""
    _, name = controller_of(meta)
    return "" if name.startswith(tuple(f"{one.lower()}/" for one in PARTS[kind])) else name
