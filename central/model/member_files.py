"""The files in /etc/lockstep of a member of an elastic Job. Each shows an annotation of the pod.

Design: docs/design/members.md
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from central.model import limits, member_numbers
from protos import names

PATH = "/etc/lockstep"
LEAVING = "true"
_UNREADABLE = "?"  # unlike anything that is written


class MemberFiles(NamedTuple):
    """Contents of the files; "": an empty file, and no annotation."""

    generation: str = ""
    size: str = ""
    members: str = ""  # as ranges: 0-5,8
    leaving: str = ""  # LEAVING
    leave_by: str = ""  # RFC 3339: when the pod is deleted at the latest


# By file, in the order of the fields.
ANNOTATIONS = {
    "generation": names.MEMBER_GENERATION,
    "size": names.MEMBER_SIZE,
    "members": names.MEMBER_NUMBERS,
    "leaving": names.MEMBER_LEAVING,
    "leave-by": names.MEMBER_LEAVE_BY,
}


def of_members(generation: int, members: Sequence[int]) -> MemberFiles:
    """Returns the files of a member that stays."""
    return MemberFiles(str(generation), str(len(members)), member_numbers.to_text(members))


def of_annotations(annotations: Mapping[str, Any]) -> MemberFiles | None:
    """Reads the files from annotations; None if the pod has none of them."""
    found = [annotations.get(key) for key in ANNOTATIONS.values()]
    if not any(each is not None for each in found):
        return None
    return MemberFiles(*map(_text, found))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) and len(value) <= limits.FILES_TEXT else _UNREADABLE


def to_annotations(files: MemberFiles) -> dict[str, str]:
    """Returns the annotations of the files that are not empty."""
    return {key: text for key, text in zip(ANNOTATIONS.values(), files, strict=True) if text}


def patch(files: MemberFiles) -> dict[str, Any]:
    """A merge patch of a pod, which removes those that are empty."""
    written = {key: text or None for key, text in zip(ANNOTATIONS.values(), files, strict=True)}
    return {"metadata": {"annotations": written}}
