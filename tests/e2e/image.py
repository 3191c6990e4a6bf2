"""Container images without a container engine: from files on this machine to a tar archive that
`ctr images import`, `docker load` and `podman load` read.

A Python image is this machine's interpreter, the packages of a virtual environment, the shared
libraries that either is linked with, and a busybox shell."""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|tkinter|turtledemo|lib2to3|__pycache__|config-[^/]*|pip|"
    r"setuptools|(pip|setuptools)-[^/]*(?<!\.whl)|site-packages|dist-packages)$|"
    r"\.(a|pyc|pyo|pyi|exe)$|/(_tkinter|_test\w*|xxlimited\w*)\.[^/]*\.so$"
)
# What packages from an index may be linked with (the many-linux rules), and name resolution loads.
COMMON = re.compile(
    r"/lib(c|m|dl|rt|util|pthread|resolv|nss_dns|nss_files|gcc_s|stdc\+\+)\.so\.\d+$"
)
File = tuple[Path | bytes, int]  # and its mode


class Layer:
    """A tar archive of files, the same bytes for the same files whenever it is made."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.links: dict[str, str] = {}
        self.folders: dict[str, int] = {}

    def add(self, source: Path, target: str) -> "Layer":
        """A file or a folder of this machine, to a path in the image; links are followed."""
        target = "/" + target.strip("/")
        if source.is_dir():
            for child in sorted(source.iterdir()):
                self.add(child, f"{target}/{child.name}")
        else:
            mode = 0o755 if os.access(source, os.X_OK) else 0o644
            self.files[target] = (source.resolve(), mode)
        return self

    def text(self, target: str, text: str) -> "Layer":
        self.files[target] = (text.encode(), 0o644)
        return self

    def tar(self) -> bytes:
        out = io.BytesIO()
        folders = dict(self.folders)
        for path in [*self.files, *self.links, *self.folders]:
            for parent in PurePath(path).parents:
                folders.setdefault(str(parent), 0o755)
        folders.pop("/", None)
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, mode in sorted(folders.items()):
                info = tarfile.TarInfo(path.strip("/"))
                info.type, info.mode = tarfile.DIRTYPE, mode
                tar.addfile(info)
            for path, target in sorted(self.links.items()):
                info = tarfile.TarInfo(path.strip("/"))
                info.type, info.linkname = tarfile.SYMTYPE, target
                tar.addfile(info)
            for path, (content, mode) in sorted(self.files.items()):
                data = content if isinstance(content, bytes) else content.read_bytes()
                info = tarfile.TarInfo(path.strip("/"))
                info.mode, info.size = mode, len(data)
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()


class Image:
    def __init__(self, name: str) -> None:
        self.name = name
        self.layers: list[bytes] = []
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

    def layer(self, archive: bytes) -> "Image":
        self.layers.append(archive)
        return self

    def add(self, source: Path, target: str) -> "Image":
        """A layer that holds one file or folder."""
        return self.layer(Layer().add(source, target).tar())

    def save(
        self,
        path: Path,
        *,
        entrypoint: Sequence[str] = (),
        directory: str = "/",
        more: Sequence[str] = (),
    ) -> None:
        """more: other names that it goes by."""
        layers = {hashlib.sha256(data).hexdigest(): data for data in self.layers}
        machine = platform.machine()
        settings = {
            "Entrypoint": list(entrypoint),
            "WorkingDir": directory,
            "Env": [f"{key}={value}" for key, value in self.env.items()],
        }
        config = {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in layers]},
            "history": [{"created_by": "tests/e2e/image.py"} for _ in layers],  # builders want it
        }
        content = json.dumps(config).encode()
        files = {f"{hashlib.sha256(content).hexdigest()}.json": content}
        files |= {f"{digest}.tar": data for digest, data in layers.items()}
        named = list(files)
        manifest = {"Config": named[0], "RepoTags": [self.name, *more], "Layers": named[1:]}
        files["manifest.json"] = json.dumps([manifest]).encode()
        temporary = path.with_name(f"{path.name}.new")
        with tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        temporary.rename(path)


def shell(layer: Layer, busybox_program: Path) -> Layer:
    """A layer with busybox, under the names of all its programs."""
    layer.add(busybox_program, "/bin/busybox")
    listing = subprocess.run([busybox_program, "--list"], capture_output=True, text=True)
    for applet in listing.stdout.split():
        if applet != "busybox":
            layer.links[f"/bin/{applet}"] = "busybox"
    layer.text(
        "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    )
    layer.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n")
    layer.text("/etc/nsswitch.conf", "hosts: files dns\n")
    layer.folders |= {"/tmp": 0o1777, "/root": 0o755}
    return layer


def busybox(name: str, program: Path) -> Image:
    return Image(name).layer(shell(Layer(), program).tar())


ABOUT = (
    "import json, sys, sysconfig; paths = sysconfig.get_paths(); print(json.dumps(["
    "getattr(sys, '_base_executable', sys.executable), paths['stdlib'], paths['purelib'], "
    "'%d.%d' % sys.version_info[:2]]))"
)


def python_layer(
    interpreter: str, busybox_program: Path, *, bare: bool = False
) -> tuple[bytes, dict[str, str]]:
    """An interpreter at /usr/local with its environment's packages (bare: none) and a shell, as an
    archive, and the variables it needs."""
    told = subprocess.run([interpreter, "-c", ABOUT], capture_output=True, text=True, check=True)
    program, stdlib, packages, version = json.loads(told.stdout)
    library = f"/usr/local/lib/python{version}"
    layer = Layer()
    with tempfile.TemporaryDirectory() as staging:
        parts = [(stdlib, library), (packages, f"{library}/packages")]
        for number, (source, target) in enumerate(parts[:1] if bare else parts):
            copy = Path(staging, str(number))
            shutil.copytree(source, copy, ignore=_left_out)
            compile_all(interpreter, copy, target)
            layer.add(copy, target)
        layer.add(Path(program), f"/usr/local/bin/python{version}")
        layer.links["/usr/local/bin/python3"] = f"python{version}"
        layer.links["/usr/local/bin/python"] = "python3"
        for path in _shared_libraries([Path(program), *Path(staging).rglob("*.so*")]):
            if not path.startswith(staging):
                layer.add(Path(path), path)  # where the programs that need it look for it
        for path in _common_libraries():
            layer.add(Path(path), path)
        archive = shell(layer, busybox_program).tar()
    return archive, {
        "PYTHONPATH": f"/app:{library}/packages",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
    }


def _left_out(folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if LEFT_OUT.search(f"{folder}/{name}")}


def compile_all(interpreter: str, folder: Path, target: str) -> None:
    """Byte code that does not depend on times: the image's files have none."""
    subprocess.run(
        [
            *(interpreter, "-m", "compileall", "-q", "-j0"),
            *("--invalidation-mode", "unchecked-hash"),
            *("-s", str(folder), "-p", target, str(folder)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
    )


def _shared_libraries(programs: Iterable[Path]) -> list[str]:
    """What these are linked with, by the paths they are found at."""
    found: set[str] = set()
    for program in programs:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        found.update(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listing, re.MULTILINE))
    return sorted(found)


def _common_libraries() -> list[str]:
    """As the loader of this machine's interpreter finds them."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    machine = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(platform.machine(), "")
    found: dict[str, str] = {}
    for name, about, path in re.findall(r"^\s+(\S+) \(([^)]*)\) => (\S+)$", listing, re.MULTILINE):
        if COMMON.search(f"/{name}") and machine in about:
            found.setdefault(name, path)
    return list(found.values())
