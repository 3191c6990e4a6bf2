"""The configuration of a node's containerd, of version 1 or 2."""

import functools
import subprocess
import tempfile
from pathlib import Path

from tests.e2e.cluster.settings import CACHE, PAUSE_IMAGE, STATE, program

UNUSED = (
    *("snapshotter.v1.aufs", "snapshotter.v1.btrfs", "snapshotter.v1.devmapper"),
    *("snapshotter.v1.zfs", "internal.v1.opt"),
)
# restrict_oom_score_adj: to lower a score takes CAP_SYS_RESOURCE, which not every root has.
VERSION_1 = """version = 2
disabled_plugins = [{disabled}]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{cache}/debian/usr/sbin/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cache}/debian/usr/lib/cni"
    conf_dir = "{cni}"
"""
VERSION_2 = """version = 3
disabled_plugins = [{disabled}]
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  use_local_image_pull = true
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{cache}/debian/usr/sbin/runc"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cache}/debian/usr/lib/cni", "{cni}/bin"]
    conf_dir = "{cni}"
"""


def configuration(cni: Path) -> str:
    """cni: the folder with the network's configuration."""
    return (VERSION_2 if major() >= 2 else VERSION_1).format(
        disabled=", ".join(f'"io.containerd.{name}"' for name in UNUSED),
        pause=PAUSE_IMAGE,
        snapshotter=snapshotter(),
        cache=CACHE,
        cni=cni,
    )


def major() -> int:
    """1, of containerd 1.6.20. Its --version prints the program, its source, and the version."""
    argv = [str(program("containerd")), "--version"]
    version = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[2]
    return int(version.removeprefix("v").split(".")[0])


@functools.cache
def snapshotter() -> str:
    """overlayfs, unless the state directory's file system cannot carry it."""
    with tempfile.TemporaryDirectory(dir=STATE) as probe:
        script = f"cd {probe} && mkdir a b c d && mount -t overlay -o lowerdir=a,upperdir=b,workdir=c probe d"
        argv = ["unshare", "--mount", "sh", "-c", script]
        works = subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 0
    return "overlayfs" if works else "native"
