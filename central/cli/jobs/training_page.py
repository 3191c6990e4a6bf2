"""The report of an elastic Job's coordinator in `lockstep job view`: as text, and as `status.training` of its JSON.
Unknown values are "-", or null."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from central.cli.terminal_table import Cell, age, columns
from central.model.json_types import Json
from central.model.timestamps import duration, stamp
from protos.common.picked import picked

if TYPE_CHECKING:
    from protos.stubs import fleet_pb2 as pb

COLUMNS = columns("#Member|Mem, #Rank, #Step, #Step time|Time, #Records/s|Rec/s, Speed, Place")
OLD_S = 10.0  # two heartbeats: an older report is said to be old
UNKNOWN = "-"
Row = tuple[str | int | Cell, ...]


def lines(view: "pb.TrainingView") -> Iterator[tuple[str, str]]:
    """Heads and texts."""
    if not view.HasField("progress"):
        yield "Training", "unknown: its coordinator has not reported its progress"
        return
    progress = view.progress
    said = [f"step {view.step}" if view.step else "no step reported"]
    said.append(_rate(progress.samples_per_s, "records"))
    if progress.HasField("epoch_left"):
        ends = _ends(_epoch_ends_s(progress))
        said.append(f"{progress.epoch_left} records left in the epoch, {ends}")
    elif view.step and not progress.queues:
        said.append("end of the epoch unknown")
    if view.progress_age_s > OLD_S:
        said.append(f"as of {duration(view.progress_age_s)} ago")
    yield "Training", "; ".join(said)
    if spent := shares(progress.gpu_seconds):
        yield "GPU time", spent
    for queue in progress.queues:
        counts = f"{queue.done} done, {queue.leased} leased, {queue.todo} to do"
        parts = [counts + (f", {queue.set_aside} set aside" if queue.set_aside else "")]
        if queue.records_per_s:
            parts.append(_rate(queue.records_per_s, "records"))
        else:
            parts.append(_rate(queue.tasks_per_s, "tasks"))
        parts.append("over" if _is_over(queue) else _ends(_queue_ends_s(queue)))
        yield "Tasks", f"queue {queue.name}, epoch {queue.epoch}: " + "; ".join(parts)


def shares(spent: Mapping[str, float]) -> str:
    """spent: GPU-seconds by activity. Empty: there are none."""
    total, found = sum(spent.values()), sorted(spent.items(), key=lambda one: -one[1])
    return ", ".join(f"{each / total:.1%} {name}" for name, each in found if each)


def members(view: "pb.TrainingView") -> list[Row]:
    """Returns a row for each member, by rank."""
    places = {place.member: place.domains for place in view.places}
    return [
        (
            one.member,
            one.rank,
            str(one.step) if one.HasField("step") else UNKNOWN,
            _short(one.step_s) + "s" if one.step_s else UNKNOWN,
            _short(one.samples_per_s) if one.samples_per_s else UNKNOWN,
            "slow" if one.straggler else "",
            _place(places.get(one.member, "")),
        )
        for one in view.progress.members
    ]


def changes(view: "pb.TrainingView") -> list[tuple[str, str]]:
    """Age and text of each, oldest first."""
    return [(age(stamp(one.at)), _change(one)) for one in view.changes]


def _change(one: "pb.SizeChange") -> str:
    size = f"{one.before} to {one.after} members" if one.before != one.after else "same size"
    said = [f"{size}: {one.reason or one.cause}"]
    if one.HasField("stepped_s"):
        said.append(f"first step after {_short(one.stepped_s)}s")
    elif one.superseded:
        said.append("superseded before its first step")
    elif one.HasField("acknowledged_s"):
        said.append(f"acknowledged after {_short(one.acknowledged_s)}s, no step yet")
    elif one.cause != "process":
        said.append("under way")
    if one.HasField("lost_s"):
        gpus = f" ({_short(one.lost_gpu_s)} GPU-seconds)" if one.lost_gpu_s else ""
        said.append(f"lost {_short(one.lost_s)}s{gpus}")
    elif one.HasField("stepped_s"):
        said.append("loss unknown")
    return "; ".join(said)


def as_json(view: "pb.TrainingView") -> Json:
    changes = [_change_json(one) for one in view.changes]
    if not view.HasField("progress"):
        return {"reported": False, "changes": changes}
    progress = view.progress
    places = {place.member: place for place in view.places}
    return {
        "reported": True,
        "ageSeconds": round(view.progress_age_s, 3),
        "generation": progress.generation,
        "step": view.step or None,
        "recordsPerSecond": progress.samples_per_s or None,
        "epochRecordsLeft": progress.epoch_left if progress.HasField("epoch_left") else None,
        "epochEndsInSeconds": _epoch_ends_s(progress),
        "members": [_member_json(one, places.get(one.member)) for one in progress.members],
        "membersNotShown": progress.left_out,
        "queues": [_queue_json(one) for one in progress.queues],
        "gpuSeconds": {name: round(each, 1) for name, each in progress.gpu_seconds.items()},
        "changes": changes,
    }


def _member_json(one: "pb.MemberProgress", place: "pb.MemberPlace | None") -> Json:
    return {
        "member": one.member,
        "rank": one.rank,
        "pod": place.pod if place is not None else None,
        "place": place.domains if place is not None else None,
        "step": one.step if one.HasField("step") else None,
        "stepSeconds": one.step_s or None,
        "recordsPerSecond": one.samples_per_s or None,
        "straggler": one.straggler,
    }


def _queue_json(one: "pb.QueueProgress") -> Json:
    return {
        **picked(one, "name epoch done leased todo"),
        "setAside": one.set_aside,
        "tasksPerSecond": one.tasks_per_s or None,
        "recordsPerSecond": one.records_per_s or None,
        "epochEndsInSeconds": 0.0 if _is_over(one) else _queue_ends_s(one),
    }


def _change_json(one: "pb.SizeChange") -> Json:
    known = ("told_s", "acknowledged_s", "stepped_s", "lost_s")
    names = ("toldSeconds", "acknowledgedSeconds", "firstStepSeconds", "lostSeconds")
    found: Json = {
        "at": datetime.fromtimestamp(one.at, UTC).isoformat(timespec="seconds"),
        **picked(one, "before after cause reason superseded"),
    }
    for field, name in zip(known, names, strict=True):
        found[name] = round(getattr(one, field), 3) if one.HasField(field) else None  # type: ignore[arg-type]
    found["lostGpuSeconds"] = round(one.lost_gpu_s, 3) if one.HasField("lost_gpu_s") else None
    return found


def _is_over(queue: "pb.QueueProgress") -> bool:
    return not queue.todo + queue.leased and queue.done + queue.set_aside > 0


def _queue_ends_s(queue: "pb.QueueProgress") -> float | None:
    """Returns the seconds until the queue's end at the present speed; None if unknown."""
    if not queue.tasks_per_s:
        return None
    return (queue.todo + queue.leased) / queue.tasks_per_s


def _epoch_ends_s(progress: "pb.TrainingProgress") -> float | None:
    if not progress.HasField("epoch_left") or not progress.samples_per_s:
        return None
    return progress.epoch_left / progress.samples_per_s


def _ends(seconds: float | None) -> str:
    if seconds is None:
        return "end unknown"
    return f"ends in about {duration(max(1.0, seconds))} at this speed"


def _rate(per_s: float, what: str) -> str:
    return f"{_short(per_s)} {what}/s" if per_s else f"{what}/s unknown"


def _short(value: float) -> str:
    """Three digits that count: 0.0412, 4.12, 412, 41234."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _place(domains: str) -> Cell:
    return Cell(domains or UNKNOWN, domains.rpartition("/")[2] or UNKNOWN)
