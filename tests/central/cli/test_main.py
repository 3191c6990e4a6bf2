"""Wrong arguments: one sentence on stderr, exit code 2, never a traceback."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from central.cli.main import main, parser
from tests.flags import silent

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "x",
    "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "x", "user": {}}],
    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
}


def refused(capsys: pytest.CaptureFixture[str], *argv: str, expected: int = 2) -> str:
    try:
        code = main(argv)
    except SystemExit as error:  # argparse
        code = int(error.code or 0)
    output = capsys.readouterr()
    assert code == expected
    assert not output.out
    assert "Traceback" not in output.err
    return output.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (["--no-such"], "unrecognized arguments: --no-such"),
        (["central", "--no-such"], "unrecognized arguments: --no-such"),
        (["schedule"], 'COMMAND: "schedule" is not one of central, demo'),
        (
            ["topology", "-o", "xml"],
            '-o/--output: "xml" is not one of table, wide, json, yaml, name',
        ),
        (
            ["job", "run", "a", "--time-limit=0s"],
            '--time-limit: "0s" is not between 1s and 2147483647 s',
        ),
        (["job", "run", "a", "--volume=a:b"], '"a:b" is not CLAIM:/PATH or CLAIM:/PATH:ro'),
        (["job", "run", "a", "--shm=much"], "--shm: memory: "),
        (
            ["job", "run", "a", "--runs-for=long"],
            '--runs-for: "long" is not a duration like 90s or 1h30m',
        ),
        (["central", "--workers=0"], "--workers: 0 is not a whole number above 0"),
        (["central", "--silent-after=x"], "--silent-after: x is not a number of seconds"),
        (["central", "--topology-levels=a,a"], '--topology-levels: "a,a" contains a name twice'),
        (["central", "--topology-levels=a b"], '"a b" is not a label key, such as lockstep.dev/r'),
        (
            ["simulate", "--topology-levels=node", "x"],
            "--topology-levels: node is a built-in level",
        ),
        (["central", "--scheduler-names=,"], '--scheduler-names: "," contains no name'),
        (["central", "--listen=9443"], '--listen: "9443" is not HOST:PORT'),
        (["central", "--metrics-listen=a:70000"], '--metrics-listen: "a:70000" is not HOST:PORT'),
        (["topology", "--server=nowhere"], '--server: "nowhere" is not HOST:PORT'),
        (["central", "--mig-fraction=nvidia.com/gpu=1"], "nvidia.com/gpu is not a MIG resource"),
        (["central", "--mig-fraction=nvidia.com/mig-1g.10gb=2"], '"2" is not a part of a GPU'),
        (["central", "--mig-fraction=nvidia.com/mig-1g.10gb=1/0"], '"1/0" is not a part of a GPU'),
        (["simulate", "--seed=x", "x"], "--seed: x is not a whole number"),
        (["simulate", "--until=soon", "x"], '--until: "soon" is not a duration'),
        (["what-if", "--until=soon"], '--until: "soon" is not a duration'),
        (["what-if", "--queue=a:b=1"], '"a:b=1" is not QUEUE:FIELD=NUMBER'),  # no cluster is asked
        (["what-if", "--submit=/no/such"], "/no/such: No such file or directory"),
        (["topology", "-l", "rack"], '-l/--selector: "rack" is not LEVEL=NAME'),
        (["report", f"--since={'9' * 400}d"], "is neither a span such as 7d"),
        (["demo", "--port=70000"], "--port: 70000 is not a port (0 to 65535)"),
        (["explain", "a/b/c/d"], 'explain: "a/b/c/d" is not [NAMESPACE/][KIND/]NAME'),
        (["explain"], "the following arguments are required: [NAMESPACE/]NAME"),
        (["central", "--kubeconfig=/no/such"], "kubeconfig /no/such: no such file"),
        (["report", "--since=yesterday"], '--since: "yesterday" is neither a span such as 7d'),
        (
            ["migrate", "check", "bogus"],
            'SOURCE: "bogus" is not one of volcano, kueue, kube-scheduler (see',
        ),
        (["report", "--by=gpu"], '--by: "gpu" is not one of queue, namespace, user, job, model'),
        (["report", "--by="], '--by: "" contains no name'),
        (["report", "--since=2026-01-02", "--until=2026-01-01"], "--since must be before --until"),
        (["report", "-o", "xml"], '-o/--output: "xml" is not one of table, json, yaml, csv'),
        (["topology", "--ca-file=/no/such"], "lockstep: /no/such: No such file or directory"),
    ],
)
def test_wrong_arguments(argv: list[str], output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert output in refused(capsys, *argv)


def test_every_flag_has_a_help_text() -> None:
    assert silent(parser()) == set()


def test_a_scheduler_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("ca", "token"):
        (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----")
    output = refused(
        capsys,
        "explain",
        "job",
        "--server=127.0.0.1:9",
        f"--ca-file={tmp_path / 'ca'}",
        f"--token-file={tmp_path / 'token'}",
        expected=5,
    )
    assert "no scheduler answers at 127.0.0.1:9" in output


def test_a_port_in_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        output = refused(
            capsys,
            "central",
            f"--kubeconfig={tmp_path / 'kubeconfig'}",
            f"--tls-dir={tmp_path / 'tls'}",
            f"--listen=127.0.0.1:{port}",
        )
    assert f"127.0.0.1:{port}" in output


def test_an_unusable_certificate_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    (tmp_path / "file").write_text("")
    output = refused(
        capsys,
        "central",
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        f"--tls-dir={tmp_path / 'file'}",
    )
    assert str(tmp_path / "file") in output


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("lockstep ")


def test_without_the_demo_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "central.standalone", None)
    assert "pip install lockstep-scheduler" in refused(capsys, "demo")


def test_a_command_starts_without_what_it_does_not_use() -> None:
    """numpy, gRPC and protobuf take five times as long to import as everything else of a start; the facts and the
    coordinator's core half as long."""
    code = (
        "import sys; from central.cli.main import parser; parser(); "
        "print(*{name.partition('.')[0] for name in sys.modules}, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "grpc", "google", "yaml", "kubernetes", "rich", "argcomplete", "urllib3"}
    heavy |= {"central.model.facts", "central.controllers", "central.scheduler"}
    assert not heavy & set(done.stdout.split())


def test_a_certificate_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("a: b")
    (tmp_path / "token").write_text("x")
    where = (f"--ca-file={tmp_path / 'ca'}", f"--token-file={tmp_path / 'token'}")
    said = refused(capsys, "topology", "--server=127.0.0.1:9", *where)
    assert said == f"lockstep: {tmp_path / 'ca'}: no certificate in PEM; set --ca-file"


def test_a_context_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(KUBECONFIG))
    said = refused(capsys, "job", "list", f"--kubeconfig={file}", "--context=other")
    assert said == f'lockstep: kubeconfig {file} has no context "other", but x'


def test_a_name_that_is_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "job", "run", "x" * 254)
    assert f'NAME: "{"x" * 20}..." has 254 characters: 253 are allowed' in said
    assert '"X" is not a name' in refused(capsys, "job", "run", "X")


def test_top_leaves_time_between_two_looks(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "top", "--interval", "0.09")
    assert "--interval: 0.09 is less than 0.1 seconds" in said
    assert parser().parse_args(["top", "--interval", "0.1"]).interval == 0.1
