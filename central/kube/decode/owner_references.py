"""What pods and their controllers say of gangs without an object: labels, annotations, and who controls
whom. Pure."""

from central.kube.errors import BROKEN, Malformed, Unreadable, text, what, who
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
        if group := text(annotations, key):
            return group, None, "", "", ""
    gang, least, wrong = text(labels, names.GANG_LABEL), None, ""
    try:
        least = minimum(labels, annotations)
    except Unreadable as error:
        wrong = str(error)
    if gang:
        return gang, least, "", "", wrong
    uid, name = controller(meta)
    if least is not None and not uid:
        wrong = f"annotation {names.GANG_MIN}: the pod has no controller, and no label {names.GANG_LABEL}"
        least = None
    return "", least, uid, name, wrong


def tier_of(annotations: Json) -> tuple[int | None, str]:
    try:
        return tier(annotations), ""
    except Unreadable as error:
        return None, str(error)


def minimum(labels: Json, annotations: Json) -> int | None:
    """The minimum of a gang without an object. Raises Unreadable."""
    for key, told in (
        (names.GANG_MIN, annotations.get(names.GANG_MIN, labels.get(names.GANG_MIN))),
        (names.OWNER_MIN, annotations.get(names.OWNER_MIN)),
    ):
        if told is not None:
            found = str(told)
            if found.isascii() and found.isdigit() and 0 < int(found[:11]) <= _MOST:
                return int(found)
            raise Unreadable(f'annotation {key}: "{found}" is not a positive whole number')
    return None


def tier(annotations: Json) -> int | None:
    """The highest tier that a gang may span, as Volcano's annotations say it. Raises Unreadable."""
    mode = annotations.get(names.TOPOLOGY_MODE)
    if mode not in (None, "hard", "soft"):
        raise Unreadable(f'annotation {names.TOPOLOGY_MODE}: "{mode}" is neither hard nor soft')
    told = annotations.get(names.TOPOLOGY_TIER)
    if told is None:
        return None
    if not (str(told).isascii() and str(told).isdigit()) or len(str(told)) > 4:
        raise Unreadable(f'annotation {names.TOPOLOGY_TIER}: "{told}" is not a whole number')
    return None if mode == "soft" else int(told)


def controller(meta: Json) -> tuple[str, str]:
    """Its uid, and its name as job/train; empty: nobody."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return text(owner, "uid"), f"{text(owner, 'kind').lower()}/{text(owner, 'name')}"
    return "", ""


def owner(kind: str, raw: Json, closeness: frozenset[str]) -> OwnerSeen:
    """closeness: what topology-required may name."""
    try:
        meta = raw["metadata"]
        uid, name = meta["uid"], f"{kind.lower()}/{meta['name']}"
    except BROKEN as error:
        raise Malformed(f"{kind} {who(raw)}: {what(error)}") from error
    try:
        annotations = meta.get("annotations") or {}
        required = text(annotations, names.TOPOLOGY_REQUIRED)
        if required and required not in closeness:
            field = f"annotation {names.TOPOLOGY_REQUIRED}"
            raise Unreadable(f'{field}: "{required}" is no level of the network tree')
        return OwnerSeen(
            uid,
            name,
            _above(kind, meta),
            minimum(meta.get("labels") or {}, annotations),
            text(annotations, names.QUEUE_NAME),
            required,
            tier(annotations),
        )
    except BROKEN as error:
        return OwnerSeen(uid, name, error=f"{name}: {what(error)}")


def _above(kind: str, meta: Json) -> str:
    if kind not in PARTS:
        return ""
    _, name = controller(meta)
    return "" if name.startswith(tuple(f"{one.lower()}/" for one in PARTS[kind])) else name
