"""Installs the fakes of NVIDIA's programs."""

from pathlib import Path

PROGRAMS = {"nvidia-cuda-mps-control": "nvidia_cuda_mps_control.py", "nvidia-smi": "nvidia_smi.py"}


def install(folder: Path, python: str = "/usr/bin/env python3") -> None:
    """python: the interpreter at the place of installation."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in PROGRAMS.items():
        text = Path(__file__).with_name(source).read_text()
        target = folder / name
        target.write_text(text.replace("#!/usr/bin/env python3", f"#!{python}", 1))
        target.chmod(0o755)
