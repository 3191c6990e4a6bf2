"""What the process behind the console's what-if answers, without the process."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from central.cli.what_if import worker
from central.cli.what_if.changes import QueueChange
from central.cli.what_if.comparison import GangDifference, GangOutcome
from central.cli.what_if.question import Answer, Change
from central.kube.transport.http_client import Client
from tests.central.cli.what_if.test_what_if import NOBODY, Put, node, put_old_and_new

Json = dict[str, Any]


def bound(document: object) -> tuple[int, str]:
    """The status and why it is refused; 0: it is not."""
    try:
        worker._bound("here", document)  # type: ignore[arg-type]  # a stranger's
    except worker.CannotAnswer as refused:
        return refused.status, str(refused)
    return 0, ""


@pytest.mark.parametrize("key", worker.COUNTS)
def test_a_count_is_bounded_wherever_it_stands(key: str) -> None:
    most = worker.COUNT_MOST
    why = f"here: {key}: more than {most} here; ask with the command lockstep what-if"
    for wrap in (lambda each: each, lambda each: {"spec": [{"a": each}]}, lambda each: [[each]]):
        for good in (most, str(most), most - 0.5, "x", None, True, [1], {"a": 1}, "-1"):
            assert bound(wrap({key: good})) == (0, "")
        for bad in (most + 1, str(most + 1), most + 0.5, 10**400, "1e300", "inf"):
            assert bound(wrap({key: bad})) == (400, why)
    assert bound({"other": most + 1}) == (0, "")
    assert bound({key: {key: most + 1}}) == (400, why), "below a count, too"


def refused(change: Json, folder: Path) -> tuple[int, str]:
    with pytest.raises(worker.CannotAnswer) as error:
        worker._change(change, folder)
    return error.value.status, str(error.value)


def test_a_change_that_is_none(tmp_path: Path) -> None:
    assert refused({}, tmp_path) == (400, "name a change")
    status, why = refused({"submit": "kind: ["}, tmp_path)
    assert (status, why.startswith("manifest.yaml: document 1: line ")) == (400, True)
    status, why = refused({"submit": "a: lockstep.dev/capture"}, tmp_path)
    assert (status, why) == (400, "manifest.yaml: lockstep.dev/capture is not allowed here")


def test_each_part_of_a_change(tmp_path: Path) -> None:
    parts = {"cordon": ["a"], "drain": ["b"], "queue": ["c:weight=1"], "without": ["d"]}
    text = json.dumps({**node("n", "r"), "apiVersion": "v1", "kind": "Node"})
    found = worker._change({**parts, "submit": text}, tmp_path)
    file = str(tmp_path / "manifest.yaml")
    queues = [QueueChange("c", "weight", 1)]
    [(where, submitted)] = found.submit
    assert found == Change(["a"], ["b"], queues, ["d"], [(where, json.loads(text))])
    assert (str(where), submitted["kind"]) == (f"{file}: document 1", "Node")
    for key, value in parts.items():
        assert worker._change({key: value}, tmp_path)


def told(client: Client, change: Json) -> Json:
    asked = {"api": client.address(), "scheduler": NOBODY, "token": "ann", "change": change}
    return worker._told(asked, ["--patience=60"])


def test_an_answer(client: Client, put: Put) -> None:
    put_old_and_new(put)
    found = told(client, {"without": ["old"], "until": "1h"})
    assert found["horizon_s"] == 3600.0
    rows = {row["name"]: row for row in found["gangs"]}
    assert rows["new"]["then"] == "starts at once on n1"
    assert rows["new"]["now"].startswith("stays pending: needs 1 pod x 8 GPUs")
    assert (rows["new"]["states"], rows["new"]["nodes"]) == (["waits", "starts"], ["n1"])
    assert found["totals"][1] == {"name": "gangs pending at the end", "now": 1, "then": 0}
    assert found["more"] == 0
    assert told(client, {"cordon": ["n1"]})["horizon_s"] == 86_400.0
    with pytest.raises(worker.CannotAnswer, match="no node named n2") as error:
        told(client, {"cordon": ["n2"]})
    assert error.value.status == 400


def test_an_api_server_that_is_away() -> None:
    asked = {"api": {"host": "http://127.0.0.1:9"}, "scheduler": NOBODY, "token": "ann"}
    with pytest.raises(worker.CannotAnswer, match="the API server does not answer: ") as error:
        worker._told({**asked, "change": {"cordon": ["n1"]}}, [])
    assert error.value.status == 503


def test_long_answers_are_cut() -> None:
    nodes = tuple(f"n{at}" for at in range(worker.NODES_MOST + 5))
    before, after = GangOutcome(), GangOutcome("starts", 0.0, nodes)
    gangs = [GangDifference("ns", f"g{at}", before, after) for at in range(worker.GANGS_MOST + 7)]
    shown = worker._shown(Answer(gangs, [("x", 1, 2)], 60.0, {("ns", "g1")}, ["a note"]))
    assert (len(shown["gangs"]), shown["more"]) == (worker.GANGS_MOST, 7)
    assert shown["gangs"][0]["nodes"] == list(nodes[: worker.NODES_MOST])
    assert [row["now"] for row in shown["gangs"][:2]] == ["does not exist", "keeps running"]
    assert (shown["notes"], shown["totals"]) == (["a note"], [{"name": "x", "now": 1, "then": 2}])


def test_the_words_of_a_bound() -> None:
    told = worker._too_large(150 << 20)
    assert told["status"] == 503
    assert told["error"].startswith("the question needs more than 150 MiB of memory")


def test_secrets_stay_in_memory() -> None:
    path = worker._in_memory("secret")
    assert Path(path).read_text() == "secret"
    assert "memfd:" in str(Path(path).readlink())
    os.close(int(path.rpartition("/")[2]))
