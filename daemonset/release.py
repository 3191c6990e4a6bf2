"""Prepare a release; publish nothing.

    python daemonset/release.py 0.2.0 --write                     write the version into every file that names it, and
                                                                  the date into CHANGELOG.md; commit that
    python daemonset/release.py 0.2.0 --base IMAGE@sha256:...     check, then build everything into build/release-0.2.0:
                                                                  images, lists of their packages, chart, manifests,
                                                                  JSON schemas, the manifest for krew, wheels, checksums
    ... --sign KEY                                                sign the checksums with an SSH key, as git does
    ... --without-images                                          leave the images out

It needs a clean checkout, buildah and helm (HELM names another one). At the end it prints the commands that publish the
result."""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+(-rc\d+)?")
IMAGES = ("agent", "central")
# Each file that names the version, and how: group 1 is what stays, group 2 the version.
PLACES = (
    ("pyproject.toml", r'^(version = ")([^"]+)(?=")'),
    ("agent/train/pyproject.toml", r'^(version = ")([^"]+)(?=")'),
    ("daemonset/chart/Chart.yaml", r"^((?:appV|v)ersion: )(\S+)"),
    ("daemonset/**/*.yaml", r"(image: ghcr\.io/lockstep/(?:agent|central):)(\S+)"),
    ("central/standalone/agent_process.py", r"(ghcr\.io/lockstep/agent:)([^\"]+)"),
    ("docs/getting-started/install.md", r"(REGISTRY/lockstep/(?:agent|central):)(\S+)"),
    ("docs/getting-started/kind.md", r"(ghcr\.io/lockstep/(?:agent|central):)(\S+)"),
    ("docs/how-to/helm.md", r"(targetRevision: v)(\S+)"),
)


NO_CONTACT = "the maintainers in private"  # what make contact replaces


KREW_SCRIPT = """#!/bin/sh
# kubectl lockstep: the command of the released wheel.
if command -v uvx >/dev/null; then exec uvx --quiet --python '>=3.11' --from WHEEL kubectl-lockstep "$@"; fi
if command -v pipx >/dev/null; then exec pipx run --quiet --spec WHEEL kubectl-lockstep "$@"; fi
echo "kubectl lockstep: uv or pipx is needed (https://docs.astral.sh/uv)" >&2
exit 2
"""


class Refused(Exception):
    """Raised if there can be no release; a line for each cause."""


def main() -> None:
    args = parser().parse_args()
    try:
        if not VERSION.fullmatch(args.version):
            raise Refused(f'"{args.version}" is not a version, such as 0.2.0 or 0.2.0-rc1')
        if args.write:
            write(ROOT, args.version)
        else:
            if found := [*problems(ROOT, args.version), *unready(args)]:
                raise Refused("\n".join(found))
            build(args.version, args.base, args.sign, images=not args.without_images)
    except Refused as error:
        for line in str(error).splitlines():
            print(f"release: {line}", file=sys.stderr)
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    about, _, usage = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(
        description=about, epilog=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("version")
    made.add_argument("--write", action="store_true", help="write the version into the files")
    made.add_argument("--base", default="", help="the images' base, by digest")
    made.add_argument("--sign", type=Path, metavar="KEY", help="the SSH key that signs")
    made.add_argument("--without-images", action="store_true")
    return made


def named(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Each place that names the version: file, pattern, version. Raises Refused for a place that is gone."""
    for place, pattern in PLACES:
        found = False
        for file in sorted(root.glob(place)):
            for match in re.finditer(pattern, file.read_text(), re.MULTILINE):
                found = True
                yield file, pattern, match[2]
        if not found:
            raise Refused(f"{place}: no version found; the file has changed, mend PLACES")


def write(root: Path, version: str) -> None:
    for file, pattern, _ in list(named(root)):
        text = file.read_text()
        file.write_text(re.sub(pattern, rf"\g<1>{version}", text, flags=re.MULTILINE))
    changelog = root / "CHANGELOG.md"
    today = datetime.datetime.now(tz=datetime.UTC).date()
    heading = f"## {version} ({today})"
    text = re.sub(r"^## \S+ \(unreleased\)$", heading, changelog.read_text(), flags=re.MULTILINE)
    changelog.write_text(text)


def problems(root: Path, version: str) -> Iterator[str]:
    """Yields the files and texts that contradict a release with this version."""
    for file, said in dict.fromkeys((file, said) for file, _, said in named(root)):
        if said != version:
            yield f"{file.relative_to(root)}: names {said}, not {version}; use --write"
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        yield f'CHANGELOG.md: no heading "## {version} (date)"; use --write'


def unready(args: argparse.Namespace) -> Iterator[str]:
    """Yields what this checkout and machine lack for a release."""
    if changed := _git("status", "--porcelain"):
        yield f"the checkout has {len(changed.splitlines())} changed files; commit them"
    tag = f"v{args.version}"
    if _git("tag", "--list", tag) and _git("rev-list", "-n1", tag) != _git("rev-parse", "HEAD"):
        yield f"the tag {tag} names another commit"
    if NO_CONTACT in (ROOT / "SECURITY.md").read_text():
        yield "SECURITY.md names no contact; make contact CONTACT=security@example.com, and commit it"
    if not args.without_images and "@sha256:" not in args.base:
        yield "--base must name the images' base by digest: IMAGE@sha256:..."
    if not _helm():
        yield "helm is not installed; HELM names one elsewhere"


def build(version: str, base: str, key: Path | None, *, images: bool) -> None:
    folder = ROOT / f"build/release-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chart = ROOT / "daemonset/chart"
    _run(_helm(), "lint", "--quiet", chart)
    _run(_helm(), "package", chart, "--destination", folder)
    # Helm takes the cluster to be older than the chart admits.
    oldest = ("--kube-version", "1.35.0")
    values = (*oldest, "--namespace", "lockstep-system", "--set", "namespace.create=true")
    manifests = _run(_helm(), "template", "lockstep", chart, *values)
    (folder / f"lockstep-{version}.yaml").write_text(manifests)
    schemas = {name: _text(schema) for name, schema in definition_schemas(chart)}
    _pack(folder / f"lockstep-{version}-schemas.tar.gz", schemas)
    write_krew(version, folder)
    for project in (ROOT, ROOT / "agent/train"):
        _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, project)
    if images:
        _run(ROOT / "daemonset/build-images", ENGINE="buildah", BASE=base)
        for image in IMAGES:
            _save(image, version, folder)
    files = sorted(folder.iterdir())
    sums = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    if key:
        _run("ssh-keygen", "-q", "-Y", "sign", "-n", "lockstep", "-f", key, folder / "SHA256SUMS")
    _tell(version, folder, images=images)


def _save(image: str, version: str, folder: Path) -> None:
    """Writes the image as an OCI archive, and its list of packages beside it."""
    tag = f"ghcr.io/lockstep/{image}:{version}"
    architecture = ("--type", "image", "--format", "{{.OCIv1.Architecture}}", tag)
    name = f"{image}-{version}-{_run('buildah', 'inspect', *architecture).strip()}"
    _run("buildah", "push", "--quiet", tag, f"oci-archive:{folder}/{name}.oci.tar:{tag}")
    container = _run("buildah", "from", "--pull-never", tag).strip()
    try:
        mounted = Path(_run("buildah", "mount", container).strip())
        packages = mounted / "opt/lockstep/sbom.cdx.json"
        shutil.copyfile(packages, folder / f"{name}.cdx.json")
    finally:
        _run("buildah", "rm", container)


def definition_schemas(chart: Path) -> Iterator[tuple[str, Any]]:
    """Yields a JSON schema for each version of a definition: GROUP/KIND_VERSION.json, as kubeconform looks for them."""
    import yaml  # the rest runs without it

    for file in sorted((chart / "files/crds").glob("*.yaml")):
        for made in yaml.safe_load_all(file.read_text()):
            spec = made["spec"]
            for each in spec["versions"]:
                schema = strict(each["schema"]["openAPIV3Schema"])
                head = schema["properties"]
                head["apiVersion"] = {"const": f"{spec['group']}/{each['name']}"}
                head["kind"] = {"const": spec["names"]["kind"]}
                schema["required"] = sorted({"apiVersion", "kind", *schema.get("required", ())})
                name = f"{spec['group']}/{spec['names']['kind'].lower()}_{each['name']}.json"
                yield name, {"$schema": "http://json-schema.org/schema#", **schema}


def strict(schema: Any, *, top: bool = True) -> Any:
    """Returns an OpenAPI schema of a definition as a JSON schema in which an unknown field is an error."""
    made = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if made.pop("nullable", False) and "type" in made:
        made["type"] = [made["type"], "null"]
    if "properties" in made:
        fields = {name: strict(each, top=False) for name, each in made["properties"].items()}
        made["properties"] = fields
        if top:  # the API server adds these to every definition
            fields |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
            fields["metadata"] = {"type": "object"}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = strict(made[key], top=False)
    return made


def write_krew(version: str, folder: Path) -> None:
    """Writes the plugin for krew: a script that runs the released wheel, and the manifest with its digest."""
    archive = folder / f"lockstep-{version}-krew.tar.gz"
    where = f"https://github.com/{os.environ.get('GITHUB_REPOSITORY', 'lockstep/lockstep')}"
    uri = f"{where}/releases/download/v{version}"
    script = KREW_SCRIPT.replace(
        "WHEEL", f"{uri}/lockstep_scheduler-{version.replace('-', '')}-py3-none-any.whl"
    )
    _pack(archive, {"kubectl-lockstep": script, "LICENSE": (ROOT / "LICENSE").read_text()})
    platform = {
        "selector": {
            "matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]
        },
        "uri": f"{uri}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-lockstep",
    }
    about = "Jobs, queues and placement of the gang scheduler Lockstep"
    spec = {
        "version": f"v{version}",
        "homepage": where,
        "shortDescription": about,
        "platforms": [platform],
    }
    spec["caveats"] = "It needs uv or pipx, and downloads its packages on the first run."
    head = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin"}
    manifest = {**head, "metadata": {"name": "lockstep"}, "spec": spec}
    (folder / "lockstep-krew.yaml").write_text(_text(manifest))  # JSON is YAML


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _pack(archive: Path, files: dict[str, str]) -> None:
    """Writes the same bytes for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:
        for name, text in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o755 if text.startswith("#!") else 0o644
            made.addfile(entry, io.BytesIO(text.encode()))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def _tell(version: str, folder: Path, *, images: bool) -> None:
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size / 1e6:8.2f} MB  {file.relative_to(ROOT)}")
    print("\nTo publish:")
    print(f"  git tag -s v{version} -m 'Lockstep {version}' && git push origin v{version}")
    print("which is all where .github/workflows/release.yml runs. Elsewhere:")
    for image in IMAGES if images else ():
        print(f"  buildah push ghcr.io/lockstep/{image}:{version}")
    print(f"  helm push {folder.relative_to(ROOT)}/lockstep-{version}.tgz oci://REGISTRY/charts")


def _git(*arguments: str) -> str:
    return _run("git", *arguments).strip()


def _helm() -> str:
    return os.environ.get("HELM") or shutil.which("helm") or ""


def _run(*argv: str | Path, **variables: str) -> str:
    done = subprocess.run(
        argv, check=False, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True
    )
    if done.returncode:
        raise Refused(
            f"{Path(argv[0]).name} failed:\n{(done.stdout + done.stderr).strip()[-2000:]}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
