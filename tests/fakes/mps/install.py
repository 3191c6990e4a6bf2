"""NVIDIA's programs, faked: python -m tests.fakes.mps.install FOLDER"""

import shutil
import sys
from pathlib import Path

PROGRAMS = {
    "nvidia-cuda-mps-control": "nvidia_cuda_mps_control.py",
    "nvidia-smi": "nvidia_smi.py",
}


def install(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in PROGRAMS.items():
        target = folder / name
        shutil.copyfile(Path(__file__).with_name(source), target)
        target.chmod(0o755)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
