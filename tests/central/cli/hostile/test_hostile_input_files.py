"""Every command that reads a file, with every hostile content: exit code 2 and one sentence that names the file, or a
result; never a traceback, nothing that a terminal obeys, in bounded time."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.__main__ import main as agent_main
from central.cli.main import main
from tests.agent.hostile.hostile_files import CONTENTS
from tests.central.poison.by_field.field_check import as_sent
from tests.central.poison.by_field.field_walk import apply, changes
from tests.effort import some

COMMAND_S = 40.0  # of processor time, least of two
JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "a", "namespace": "n", "annotations": {"a": "b"}},
    "spec": {
        "minAvailable": 1,
        "tasks": [
            {
                "name": "w",
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            }
        ],
    },
}
NODE = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}'
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
ODD = "\x1b[2J\x1b[31mred"
DOCUMENTS = {
    "aliases of aliases": BOMB,
    "an alias in its own anchor": "a: &a [*a]",
    "a Python object": "!!python/object/apply:os.system ['true']",
    "an unknown tag": "!x y",
    "a date that is none": "a: 2026-99-99",
    "a number of 5,000 digits": f"a: {'9' * 5000}",
    "a key that is a list": "? [a, b]\n: c",
    "a key that is a number": "1: 2\ntrue: 3\nnull: 4",
    "a merge": "a: &a {b: c}\nd:\n  <<: *a\n  <<: 5",
    "tabs": "a:\n\tb: c",
    "an open quote": "a: 'b",
    "a text": "just words",
    "a list": "- a\n- b",
    "a list of lists": "[[[[[[[[[[]]]]]]]]]]",
    "200 levels": "[" * 200 + "]" * 200,
    "100,000 levels": "[" * 100_000,
    "100,000 maps": '{"a":' * 100_000,
    "many documents": "---\n" * 5000,
    "documents of every kind": "---\n1\n---\nnull\n---\n[]\n---\n{}\n---\na",
    "a List of a number": '{"apiVersion": "v1", "kind": "List", "items": 5}',
    "a List of a map": '{"apiVersion": "v1", "kind": "List", "items": {"a": 1}}',
    "a List of a text": '{"apiVersion": "v1", "kind": "List", "items": "abc"}',
    "a List of null": '{"apiVersion": "v1", "kind": "List", "items": [null]}',
    "Lists in Lists": '{"apiVersion":"v1","kind":"List","items":[' * 90 + "]}" * 90,
    "an unprintable kind": json.dumps({"apiVersion": "v1", "kind": ODD, "metadata": {"name": "a"}}),
    "an unprintable version": json.dumps({"apiVersion": ODD, "kind": "Job", "metadata": {}}),
    "an unprintable name": json.dumps({**JOB, "metadata": {"name": ODD}}),
    "an unprintable key": json.dumps({ODD: 1}),
    "metadata that is a text": '{"apiVersion": "v1", "kind": "Pod", "metadata": "a"}',
    "a kind that is a list": '{"apiVersion": "v1", "kind": ["Pod"], "metadata": {}}',
    "a journal": '{"journal": 2}',
    "a journal of the future": '{"journal": 99, "version": "\\u001b[31m"}',
    "a journal with odd settings": '{"journal": 2, "version": "x", "settings": {"levels": 5}}\n{"turn": 7}',
    "a journal with an odd checkpoint": '{"journal":2,"version":"1","settings":{"levels":[]}}\n{"checkpoint":"ä"}\n',
    "an odd schema": '{"schema": "\\u001b[31mred", "gpus": []}',
    "a capture of the wrong kind": '{"schema": "lockstep.dev/capture/v1", "gpus": {"a": 1}}',
    "a device plugin's configuration": "version: v1\nsharing:\n  timeSlicing:\n    resources: 5",
    "a ConfigMap of a list": '{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": [1]}',
    "a kubeconfig of numbers": "apiVersion: v1\nkind: Config\nclusters: 5\ncontexts: 6\nusers: 7\ncurrent-context: 8",
    "a kubeconfig without a cluster": "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n"
    "  context: {cluster: none, user: none}\nclusters: []\nusers: []\n",
    "a kubeconfig with odd certificates": "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n"
    "  context: {cluster: c, user: u}\nclusters:\n- name: c\n  cluster: {server: 'https://127.0.0.1:1',"
    " certificate-authority-data: '%%%'}\nusers:\n- name: u\n  user: {token: \"a\\nb\"}\n",
}  # fmt: skip


def lockstep(*argv: str) -> Callable[[Path], int]:
    return lambda file: main([each.replace("FILE", str(file)) for each in argv])


def agent(*argv: str) -> Callable[[Path], int]:
    return lambda file: agent_main([each.replace("FILE", str(file)) for each in argv])


COMMANDS = {
    "simulate": lockstep("simulate", "FILE", "--until", "1m"),
    "simulate with pod groups": lockstep("simulate", "/dev/null", "--pod-groups", "FILE"),
    "replay": lockstep("replay", "FILE"),
    "job run": lockstep("job", "run", "-f", "FILE", "--dry-run", "-n", "n"),
    "job list": lockstep("job", "list", "--kubeconfig", "FILE"),
    "what-if": lockstep("what-if", "--cordon", "n", "--kubeconfig", "FILE"),
    "topology": lockstep("topology", "--kubeconfig", "FILE"),
    "migrate check": lockstep("migrate", "check", "--kubeconfig", "FILE"),
    "agent topology": agent("topology", "--capture", "FILE"),
    "agent migrate": agent("migrate", "FILE"),
}
INPUTS = {**CONTENTS, **{name: text.encode() for name, text in DOCUMENTS.items()}}


def check(
    command: str, file: Path, where: str, capsys: pytest.CaptureFixture[str], *, named: bool = True
) -> None:
    began = time.process_time()
    try:
        code = COMMANDS[command](file)
    except SystemExit as ended:  # the parser's
        code = int(str(ended.code))
    except Exception as error:
        raise AssertionError(f"{where}: {error!r:.300}") from error
    spent_s = time.process_time() - began
    out, err = capsys.readouterr()
    assert code in (0, 2), f"{where}: {code}: {err}"
    assert spent_s < COMMAND_S, f"{where}: {spent_s:.1f} s"
    odd = [line for line in (out + err).split("\n") if not line.replace("\t", " ").isprintable()]
    assert not odd, f"{where}: {odd[:3]}"
    if code:
        assert len(err) < 2000, f"{where}: {len(err)} characters"
        assert len(err.strip().splitlines()) <= 6, f"{where}: {err}"
        assert not named or file.name in err or "the files are empty" in err, f"{where}: {err}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (name, content) in enumerate(some([*INPUTS.items()])):
        file = tmp_path / f"in-{number}.yaml"
        file.write_bytes(content)
        check(command, file, name, capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_none(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(command, tmp_path / "missing.yaml", "missing", capsys)
    (tmp_path / "folder.yaml").mkdir()
    check(command, tmp_path / "folder.yaml", "a folder", capsys, named=command != "simulate")
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")
    check(command, tmp_path / "circle.yaml", "a circle", capsys)


@pytest.mark.parametrize("command", ["simulate", "job run", "agent migrate"])
def test_every_field_of_a_job(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.json"
    for change in some([*changes(JOB)][::23]):
        file.write_bytes(NODE.encode() + b"\n---\n" + as_sent(apply(JOB, change)))
        check(command, file, str(change), capsys, named=command != "job run")


@pytest.mark.parametrize("command", ["simulate", "job run", "agent migrate"])
def test_standard_input(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("aliases of aliases", "100,000 levels", "a List of a number", "tabs"):
        monkeypatch.setattr("sys.stdin", io.StringIO(DOCUMENTS[name]))
        check(command, Path("-"), name, capsys, named=False)
