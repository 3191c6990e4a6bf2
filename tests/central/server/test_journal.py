"""A journal reads back as it was written, is bounded in size, and replays to the same decisions."""

import json
import lzma
import os
import re
import subprocess
import typing
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from central.cli.main import main
from central.controllers.composite import new_scheduler
from central.model.decisions import EVICTION_CAUSES, Decision
from central.model.facts import Fact, PodGone
from central.scheduler import cycle
from central.scheduler.scheduler import Policy
from central.server import codec, journal, replay
from central.server.journal import Journal
from central.server.version import version
from protos.common import own_program
from tests.central import factories
from tests.central.scheduler.invariants import check_journal
from tests.central.server.any_values import any_of
from tests.central.simulator import manifests
from tests.effort import examples

FULL = Path("/dev/full")


@pytest.mark.parametrize(
    "kind", [*typing.get_args(Fact), *typing.get_args(Decision)], ids=lambda kind: kind.__name__
)
def test_every_fact_and_decision_comes_back_equal(kind: type) -> None:
    @settings(max_examples=examples(25), deadline=None)
    @given(any_of(kind))
    def comes_back(value: Any) -> None:
        written = codec.dumps(codec.tagged([value]))
        [found] = codec.untagged(json.loads(written))
        assert found == value
        assert type(found) is kind

    comes_back()


def test_a_field_that_a_record_lacks_gets_its_default() -> None:
    [found] = codec.untagged([["EvictDone", {"pod": "p"}]])
    assert found.why == ""
    with pytest.raises(codec.UnreadableRecord, match="Nonsense"):
        codec.untagged([["Nonsense", {}]])


def test_every_setting_of_a_run_comes_back() -> None:
    values: dict[str, Any] = {each.name: 3 for each in fields(Policy)} | {
        "placement": "spread",
        "preempt_across": "all",
        "mig_fractions": {"nvidia.com/mig-1g.5gb": "1/7"},
        "share_by_weight": ["b", "a"],
    }
    written = journal.settings(new_scheduler(("rack",), half_life_s=2.0, **values))
    assert written == values | {
        "levels": ["rack"],
        "half_life_s": 2.0,
        "share_by_weight": ["a", "b"],
    }
    again = new_scheduler(**json.loads(json.dumps(written)))
    assert journal.settings(again) == written
    assert again.policy.mig_fractions == (("nvidia.com/mig-1g.5gb", Fraction(1, 7)),)


def busy() -> list[manifests.Json]:
    objects = [manifests.node(f"n{i}", rack=f"r{i // 2}") for i in range(6)]
    objects.append(manifests.node("late", arrives_at="5m", leaves_at="40m"))
    for i in range(12):
        objects += manifests.gang(f"g{i}", 1 + i % 5, 1 + i % 8, runs=f"{3 + i}m")
        objects.append(manifests.pod(f"p{i}", 1, at=f"{i}m", runs="1h", recreate="true"))
    return objects


def written(folder: Path) -> Path:
    source, file = folder / "in.json", folder / "day.journal"
    source.write_text("\n".join(map(json.dumps, busy())))
    assert main(["simulate", str(source), "-o", "json", "--journal", str(file)]) == 0
    return file


def test_a_simulated_day_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    capsys.readouterr()
    assert main(["replay", str(file)]) == 0
    assert "the same" in capsys.readouterr().out
    done = replay.replay(str(file))
    assert done.decisions > 50
    assert done.cycles > 40
    check_journal(str(file))


def test_the_first_decision_that_differs_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    lines = file.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"Bind"' in line)
    lines[place] = lines[place].replace('"node":"n', '"node":"x', 1)
    file.write_text("\n".join(lines) + "\n")
    capsys.readouterr()
    assert main(["replay", str(file)]) == 1
    output = capsys.readouterr().out
    assert f"{file}: decisions differ at cycle 1 (line 2" in output
    assert "then: Bind(" in output
    assert "now:  Bind(" in output


def of_another_version(file: Path) -> str:
    return file.read_text().replace(f'"version":"{version()}"', '"version":"0.0.9"', 1)


def written_with_jobs(folder: Path) -> Path:
    """A day in which a Job is evicted for one of a higher priority."""
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    limits = {"limits": {"nvidia.com/gpu": 8}}
    container = {"name": "main", "image": "x", "resources": limits}

    def job(name: str, **spec: object) -> manifests.Json:
        task = {"name": "w", "replicas": 1, "template": {"spec": {"containers": [container]}}}
        notes = {"lockstep.dev/arrives-at": "1m" if spec else "0s", "lockstep.dev/runs-for": "1h"}
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "annotations": notes},
            "spec": {"minAvailable": 1, "tasks": [task], **spec},
        }

    source, file = folder / "in.json", folder / "jobs.journal"
    objects = [manifests.node("n"), urgent, job("old"), job("new", priorityClassName="high")]
    source.write_text("\n".join(map(json.dumps, objects)))
    assert main(["simulate", str(source), "-o", "json", "--journal", str(file)]) == 0
    text = file.read_text()
    assert '"minResources"' in text
    assert '["Evict",' in text
    return file


@pytest.mark.parametrize("other", [False, True])
def test_another_cause_of_an_eviction_is_a_difference(tmp_path: Path, other: bool) -> None:
    file = written_with_jobs(tmp_path)
    if other:
        file.write_text(of_another_version(file))
    assert replay.replay(str(file)).decisions
    text = file.read_text()
    [cause] = {*re.findall(r'"cause":"([^"]+)"', text)} & {*EVICTION_CAUSES}
    file.write_text(text.replace(f'"cause":"{cause}"', '"cause":""'))
    assert replay.replay(str(file)).decisions
    file.write_text(text.replace(f'"cause":"{cause}"', '"cause":"nobody"'))
    with pytest.raises(replay.Differs, match="Evict"):
        replay.replay(str(file))


def test_amounts_of_min_resources_are_compared_across_versions(tmp_path: Path) -> None:
    file = written_with_jobs(tmp_path)
    text = of_another_version(file)
    both = re.search(r'"nvidia.com/gpu":("?8"?),', text.partition('"minResources"')[2])
    assert both is not None
    file.write_text(text.replace(both[0], "", 1))
    assert replay.replay(str(file)).decisions
    changed = re.sub(r'("minResources":\{[^}]*gpu":"?)8', r"\g<1>7", text)
    assert changed != text
    file.write_text(changed)
    with pytest.raises(replay.Differs, match="decision"):
        replay.replay(str(file))


def reworded(file: Path, old: str, new: str) -> None:
    """In what was decided."""
    found = file.read_text().splitlines(keepends=True)
    changed = [line.replace(old, new) if line.startswith('{"decided"') else line for line in found]
    assert changed != found
    file.write_text("".join(changed))


def status(file: Path) -> str:
    """The first decision that is a pending gang's status, as it was written."""
    found = re.search(r'\["UpdateGangStatus",\{[^]]*?"phase":"Pending".*?\}\]', file.read_text())
    assert found is not None
    return found[0]


def test_decisions_only_leaves_wording_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    reworded(file, "the cluster fits", "there is room for")
    assert main(["replay", str(file)]) == 1
    assert main(["replay", "--decisions-only", str(file)]) == 0
    assert "the same" in capsys.readouterr().out.splitlines()[-1]


def test_decisions_only_leaves_out_a_status_that_is_only_reworded(tmp_path: Path) -> None:
    """One more or one less of them is no difference, another phase is one."""
    file = written(tmp_path)
    one = status(file)
    again = re.sub(r'"reason":"[^"]*"', '"reason":"other words"', one)
    assert again != one
    reworded(file, one, f"{one},{again}")
    with pytest.raises(replay.Differs):
        replay.replay(str(file))
    assert replay.replay(str(file), decisions_only=True).cycles
    reworded(file, again, again.replace('"Pending"', '"Inqueue"'))
    with pytest.raises(replay.Differs, match="Inqueue"):
        replay.replay(str(file), decisions_only=True)


def test_decisions_only_compares_no_field_that_the_journal_is_older_than(tmp_path: Path) -> None:
    file = written(tmp_path)
    changed, count = re.subn(r'"running":\d+,|"gpus":\d+,', "", file.read_text())
    assert count
    file.write_text(changed)
    with pytest.raises(replay.Differs):
        replay.replay(str(file))
    assert replay.replay(str(file), decisions_only=True).decisions


@pytest.mark.parametrize("decision", ["Bind", "Evict"])
def test_decisions_only_compares_what_is_decided(tmp_path: Path, decision: str) -> None:
    file = written_with_jobs(tmp_path)
    changed, count = re.subn(
        rf'(\["{decision}",\{{[^]]*?"node":")n"', r'\1far"', file.read_text(), count=1
    )
    assert count
    file.write_text(changed)
    with pytest.raises(replay.Differs, match=rf"then: {decision}\(.*node='far'"):
        replay.replay(str(file), decisions_only=True)


def test_a_file_may_be_compressed_and_hold_several_journals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, packed = written(tmp_path), tmp_path / "both.journal.xz"
    once = replay.replay(str(file))
    packed.write_bytes(lzma.compress(2 * file.read_bytes()))
    check_journal(str(packed))
    twice = replay.replay(str(packed))
    assert (twice.cycles, twice.decisions) == (2 * once.cycles, 2 * once.decisions)
    packed.write_bytes(packed.read_bytes()[:-200])
    assert main(["replay", str(packed)]) == 2
    packed.write_bytes(b"no xz")
    assert main(["replay", str(packed)]) == 2
    assert capsys.readouterr().err.count("not a whole file of xz") == 2


def test_a_missing_or_new_decision_is_a_difference(tmp_path: Path) -> None:
    file = written(tmp_path)
    lines = file.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith('{"decided"'))
    file.write_text("\n".join(lines[:place] + lines[place + 1 :]) + "\n")
    with pytest.raises(replay.Differs, match="then: no decision"):
        replay.replay(str(file))


@pytest.mark.parametrize("lost", [1, 20, 200])
def test_a_truncated_journal_is_read_up_to_its_end(tmp_path: Path, lost: int) -> None:
    file = written(tmp_path)
    file.write_bytes(file.read_bytes()[:-lost])
    done = replay.replay(str(file))
    assert done.cycles > 40


HEAD = '{"journal":2,"version":"' + version() + '","settings":{"levels":[]}}\n'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "No such file"),
        ("", "it has no scheduling cycle to compare"),
        (HEAD, "it has no scheduling cycle to compare"),
        (HEAD + '{"learn":[0,[]]}\n', "it has no scheduling cycle to compare"),
        (HEAD + '{"turn":[0,[]]}\n', ""),
        ("[]\n", "line 1 is not a journal entry"),
        ('{"journal": 1}\n', "unknown format 1 (this version reads 2)"),
        ('{"journal": 3}\n', "unknown format 3 (this version reads 2)"),
        ('{"journal": 2}\n', "line 1: settings: 'settings'"),
        ("not json\n", "not a journal, as --journal writes it"),
        ("\0\n", "not a journal, as --journal writes it"),
        ('{"journal":2,"settings":{"levels":[]}}\n{"what":1}\n', "line 2 is not a journal entry"),
        ('{"journal":2,"settings":{"levels":[]}}\n{"turn":[0,[["No",{}]]]}\n', "line 2: "),
        (HEAD + "torn\n" + '{"turn":[0,[]]}\n', "line 2: not JSON"),
        (HEAD + '{"checkpoint":"AAAA"}\n', "line 2 is not a journal entry"),
        (HEAD + '{"checkpoint":{}}\n', "line 2: checkpoint: "),
    ],
)
def test_a_malformed_journal_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, what: str
) -> None:
    file = tmp_path / "x.journal"
    if content is not None:
        file.write_text(content)
    code = main(["replay", str(file)])
    output = capsys.readouterr().err
    assert code == (2 if what else 0)
    assert what in output
    assert "Traceback" not in output


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def test_rotation_begins_a_file_that_replays_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "long.journal"
    scheduler = new_scheduler(factories.LEVELS)
    kept = Journal(file, scheduler, most_bytes=10_000)
    setup: list[Fact] = [factories.node("a", rack="r1"), factories.report("a")]
    kept.learn(0.0, setup)
    cycle.apply_facts(scheduler, setup, 0.0)
    for number in range(200):
        pod = factories.pod(f"p-{number}", 3)
        gone = PodGone(f"uid-p-{number - 2}")
        facts: list[Fact] = [pod, gone]
        now = float(number)
        kept.turn(now, facts)
        kept.decided(cycle.schedule_once(scheduler, facts, now))
    kept.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.journal", "long.journal.1"]
    assert '{"checkpoint"' in file.read_text()[:600]
    for part in (file, tmp_path / "long.journal.1"):
        check_journal(str(part))
        done = replay.replay(str(part))
        assert done.decisions > 0
        assert part.stat().st_size < 60_000
    for seed in ("1", "2"):  # another process hashes differently
        done_there = subprocess.run(
            [*own_program.command("central"), "replay", str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done_there.returncode == 0, done_there.stdout + done_there.stderr


def test_a_checkpoint_of_another_version_is_read(tmp_path: Path) -> None:
    file, scheduler = tmp_path / "x.journal", new_scheduler(factories.LEVELS)
    kept = Journal(file, scheduler, most_bytes=1000)
    for number in range(4):
        facts: list[Fact] = [factories.node(f"n{number}", rack="r"), factories.pod(f"p{number}", 8)]
        kept.turn(float(number), facts)
        kept.decided(cycle.schedule_once(scheduler, facts, float(number)))
    kept.close()
    assert [*lines(file)[1]] == ["checkpoint"]
    file.write_text(of_another_version(file))
    check_journal(str(file))
    assert replay.replay(str(file)).decisions


def test_a_file_is_rotated_at_the_end_of_a_round_unless_that_takes_too_long(tmp_path: Path) -> None:
    file, scheduler = tmp_path / "x.journal", new_scheduler()
    Journal(file, scheduler).close()
    begun, line = file.stat().st_size, len(b'{"turn":[1.0,[]]}\n')
    scheduler.state.pending.round = "goes on"
    kept = Journal(file, scheduler, most := begun + 3 * line)
    first = file.stat().st_ino
    while file.stat().st_ino == first:
        kept.turn(1.0, [])
    assert 2 * most < (tmp_path / "x.journal.1").stat().st_size <= 2 * most + line
    assert scheduler.state.pending.round is None, "it begins again, as in a replay"
    kept.close()


def test_a_line_may_have_so_many_bytes(tmp_path: Path) -> None:
    file = tmp_path / "x.journal.xz"
    file.write_bytes(lzma.compress((HEAD + '{"turn":[0,[]]}' + 1000 * " " + "\n").encode()))
    assert replay.replay(str(file), line_most=1016).cycles == 1
    with pytest.raises(replay.BadJournal, match="line 2 is longer than 1015 bytes"):
        replay.replay(str(file), line_most=1015)


# --- what is written --------------------------------------------------------------
