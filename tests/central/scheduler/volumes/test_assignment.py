"""How many pods each node has volumes for, and which volumes they get, against a plain search over small stocks."""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from central.model.pod_rules import Requirement
from central.model.volumes import AVAILABLE, VolumeRequest, Volumes, VolumeSeen
from central.scheduler.volumes.assignment import MANY, VolumeAssignment
from central.scheduler.volumes.reach import Places
from tests.central import factories
from tests.central.scheduler import recounts

ROWS = 3
MOST = 4  # pods of one kind for which there may be volumes
SMALL, LARGE = VolumeRequest("c", 1), VolumeRequest("c", 2)
BOTH = VolumeRequest("c", 1, ("rwx",))
MADE = VolumeRequest("c", 2, ("rwo",), made=())
OTHER = VolumeRequest("d", 1)
PROVISIONED = {MADE: np.array([0, 1, 1], dtype=np.int64)}
WANTS = (SMALL, LARGE, BOTH, MADE, OTHER)


def places(rows: Sequence[int]) -> Places:
    names = tuple(f"n{row}" for row in rows)
    return (((Requirement("metadata.name", "In", names, field=True),),),)


def put_nodes(made: VolumeAssignment) -> None:
    for row in range(ROWS):
        made.free.put_node(row, factories.node(f"n{row}"), ROWS)


def drawn_volume(dice: random.Random, number: int) -> VolumeSeen:
    rows = dice.choice(([0], [1], [2], [0, 1], [0, 1, 2]))
    modes = dice.choice(((), ("rwo",), ("rwx",), ("rwo", "rwx")))
    size, storage_class = dice.choice((1, 2, 3)), dice.choice("cccd")
    of = {"storage_class": storage_class, "size": size, "modes": modes, "phase": AVAILABLE}
    return VolumeSeen(f"v{number}", places(rows), **of)  # type: ignore[arg-type]  # a test's shorthand


def drawn_pod(dice: random.Random, number: int) -> Volumes:
    """Requests of its own, and claims that it shares."""
    wants = tuple((want, dice.randint(1, 2)) for want in dice.sample(WANTS, dice.choice((0, 1, 2))))
    shared = [
        (f"ns/s{number}-{each}", dice.choice(WANTS)) for each in range(dice.choice((0, 0, 1, 2)))
    ]
    return Volumes(wants=wants, shared=tuple(shared))


class Plain:
    """Which volumes are left, and where claims that are shared have theirs."""

    def __init__(self) -> None:
        self.listed: dict[str, VolumeSeen] = {}
        self.taken: set[str] = set()
        self.shared: dict[str, str] = {}

    def reaches(self, volume: str, row: int) -> bool:
        return f"n{row}" in self.listed[volume].places[0][0][0].values

    def fits(self, want: VolumeRequest, volume: str, row: int) -> bool:
        seen = self.listed[volume]
        same = seen.storage_class == want.storage_class
        return same and volume not in self.taken and want.takes(seen) and self.reaches(volume, row)

    def can_serve(self, wants: Sequence[VolumeRequest], row: int, used: frozenset[str]) -> bool:
        if not wants:
            return True
        return any(
            self.can_serve(wants[1:], row, used | {volume})
            for volume in self.listed
            if volume not in used and self.fits(wants[0], volume, row)
        )

    def capacity(self, pod: Volumes, row: int) -> int:
        """MANY if no number is too large."""
        for claim, _ in pod.shared:
            volume = self.shared.get(claim, "")
            if volume and not (volume in self.listed and self.reaches(volume, row)):
                return 0
        own = [want for want, count in pod.wants for _ in range(count)]
        once = [want for claim, want in pod.shared if claim not in self.shared]
        own, once = ([w for w in some if not self.is_made(w, row)] for some in (own, once))
        if not self.can_serve(once, row, frozenset()):
            return 0
        if not own:
            return int(MANY)
        pods = 0
        while self.can_serve([*own * (pods + 1), *once], row, frozenset()):
            pods += 1
        return pods

    def is_made(self, want: VolumeRequest, row: int) -> bool:
        return want in PROVISIONED and bool(PROVISIONED[want][row])


def compare(made: VolumeAssignment, plain: Plain, pods: Sequence[Volumes]) -> None:
    recounts.check_free_volumes(made.free)
    for pod in pods:
        found = made.capacity(pod, PROVISIONED).tolist()
        assert found == [plain.capacity(pod, row) for row in range(ROWS)]
        left = {n: v for n, v in plain.listed.items() if n not in plain.taken}
        far = any(
            plain.fits(want, name, row) and len(volume.places[0][0][0].values) > 1
            for name, volume in left.items()
            for want, _ in pod.wants
            for row in range(ROWS)
        )
        assert made.spans_nodes(pod) == (far or bool(pod.shared))
    names = {n for n in plain.shared.values() if n}
    assert made.assigned() >= names


@pytest.mark.parametrize("seed", range(12))
def test_pods_get_volumes_as_long_as_any_assignment_serves_them(seed: int) -> None:
    """Volumes come and go; pods are placed, taken back, and confirmed, which keeps their volumes."""
    dice, made, plain = random.Random(seed), VolumeAssignment(), Plain()
    put_nodes(made)
    pods = [drawn_pod(dice, number) for number in range(4)]
    placed: Counter[tuple[int, Volumes]] = Counter()
    confirmed: Counter[tuple[int, Volumes]] = Counter()
    known: dict[tuple[Volumes, tuple[int, ...]], list[int]] = {}
    numbers = iter(range(1_000))
    for _ in range(40):
        for pod in pods:  # equal versions: equal capacity
            now = made.capacity(pod, PROVISIONED).tolist()
            assert known.setdefault((pod, made.version(pod)), now) == now
        step, pod, row = dice.random(), dice.choice(pods), dice.randrange(ROWS)
        before = made.assigned()
        if step < 0.35:
            volume = drawn_volume(dice, next(numbers))
            plain.listed[volume.name] = volume
            made.free.put(volume)
        elif step < 0.4 and (gone := sorted(plain.listed.keys() - plain.taken)):
            made.free.drop(gone[0])
            del plain.listed[gone[0]]
        elif step < 0.75:
            count = dice.randint(1, MOST)
            if count > plain.capacity(pod, row):
                continue
            fresh = [claim for claim, _ in pod.shared if claim not in plain.shared]
            made.count(row, pod, count)
            placed[row, pod] += count if pod.wants or pod.shared else 0
            got = made.assigned() - before
            own = [want for want, each in pod.wants for _ in range(each * count)]
            own += [want for claim, want in pod.shared if claim in fresh]
            least = sum(not plain.is_made(want, row) for want in own)
            assert least <= len(got) <= len(own)
            assert not got & plain.taken
            assert all(any(plain.fits(want, name, row) for want in own) for name in got)
            plain.taken |= got
            for claim, want in pod.shared:
                if claim in fresh:
                    at = plain.shared[claim] = made._shared[claim].volume
                    assert at in got or (not at and plain.is_made(want, row))
        elif step < 0.85 and not pod.shared and placed[row, pod]:
            count = dice.randint(1, placed[row, pod])
            each, shared = made.confirm(row, pod, count)
            assert (len(each), shared) == (count, {})
            needed = [want for want, number in pod.wants for _ in range(number)]
            for names in each:
                for want, name in zip(needed, names, strict=True):
                    seen = plain.listed.get(name)
                    assert want.takes(seen) if seen else plain.is_made(want, row)
            placed[row, pod] -= count
            confirmed[row, pod] += count
            handed = {name for names in each for name in names if name}
            assert handed == before - made.assigned()
        elif (total := placed[row, pod] + confirmed[row, pod]) > 0:
            count = dice.randint(1, total)
            made.count(row, pod, -count)
            old = min(count, confirmed[row, pod])
            confirmed[row, pod] -= old
            placed[row, pod] -= count - old
            for claim, _ in pod.shared:
                if not any(
                    n and any(c == claim for c, _ in p.shared) for (_, p), n in placed.items()
                ):
                    plain.shared.pop(claim, None)
            plain.taken -= before - made.assigned()
        assert made.free.reserved == plain.taken
        some = frozenset(dice.sample([*plain.listed, "none"], dice.randint(0, len(plain.listed))))
        assert made.free.available(some) == (some & plain.listed.keys()) - plain.taken
        assert recounts.pods_assigned(made) == {key: n for key, n in placed.items() if n}
        compare(made, plain, pods)
    for (row, pod), count in placed.items():
        made.count(row, pod, -count)
    assert made.assigned() == set()


def test_many_rows_are_counted_at_once() -> None:
    made, pod = VolumeAssignment(), Volumes(wants=((SMALL, 1),))
    put_nodes(made)
    for row in range(ROWS):
        for number in range(2):
            seen = VolumeSeen(f"v{row}{number}", places([row]), "", "c", 1, phase=AVAILABLE)
            made.free.put(seen)
    made.count(np.array([0, 2]), pod, np.array([1, 2]))
    assert made.capacity(pod, {}).tolist() == [1, 2, 0]
    made.count(np.array([0, 2]), pod, -1)
    assert made.capacity(pod, {}).tolist() == [2, 2, 1]


def test_pods_that_share_a_claim_hand_its_volume_over_once() -> None:
    made, pod = VolumeAssignment(), Volumes(wants=((SMALL, 1),), shared=(("ns/s", LARGE),))
    put_nodes(made)
    for number, size in enumerate((1, 1, 1, 2)):
        made.free.put(VolumeSeen(f"v{number}", places([0]), "", "c", size, phase=AVAILABLE))
    made.count(0, pod, 2)
    versions = made.version(pod)
    found, shared = made.confirm(0, pod, 1)
    assert (found, shared) == ([("v1",)], {"ns/s": "v3"})
    assert made.version(pod) != versions
    assert made.confirm(0, pod, 1) == ([("v0",)], {})
    assert made.assigned() == set()
    assert made.free.reserved == {"v0", "v1", "v3"}
    made.count(0, pod, -2)
    assert made.free.reserved == {"v0", "v1", "v3"}
    assert recounts.pods_assigned(made) == {}
