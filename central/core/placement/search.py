"""Where a gang goes: the closest domain that takes it whole. From the inside out: one island, one
node, then each level of the network tree from the narrowest to the widest, then anywhere."""

from collections.abc import Sequence

from central.core import onebyone, why
from central.core.draft import DoesNotFit, Draft, Seat
from central.core.placement import parts
from central.core.placement.choice import Choice
from central.core.placement.levels import ladder
from central.core.placement.seating import seat
from central.core.placement.want import Want


def fit(draft: Draft, want: Want) -> list[Seat]:
    """Takes the seats on the draft and returns them, closest neighbours beside each other.

    Raises DoesNotFit, with the draft as it was.
    """
    for spec, _ in want.groups:
        if spec.unsupported:
            raise DoesNotFit(spec.unsupported)
    mark, snapshot = len(draft.seats), draft.snapshot
    levels = ladder(snapshot, want.required)
    if want.parts:
        return parts.fit(draft, want, levels)
    if onebyone.entangled(snapshot, want.groups):
        return _one_by_one(draft, want, levels)
    counts = [count for _, count in want.groups]
    for level in levels:
        rooms = [snapshot.view(spec).refresh() for spec, _ in want.groups]
        for rows in Choice(snapshot, rooms, counts, want.anchors).of(level):
            try:
                with draft.all_or_nothing():
                    seat(draft, want.groups, level, rows, want.anchor_gpus)
            except DoesNotFit:
                continue
            return draft.seats[mark:]
    raise DoesNotFit(why.sentence(snapshot, want.groups, want.required, want.anchors))


def _one_by_one(draft: Draft, want: Want, levels: Sequence[str]) -> list[Seat]:
    try:
        return onebyone.fit(draft, want.groups, levels, want.anchors, want.anchor_gpus)
    except DoesNotFit as no:
        text = why.sentence(draft.snapshot, want.groups, want.required, want.anchors, no.why)
        raise DoesNotFit(text) from None
