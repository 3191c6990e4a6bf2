"""Flags of GPUs in shares."""

import argparse
from pathlib import Path

from agent.sharing.sharing_mode import parse


def add_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--share-gpus",
        type=_ways,
        default="all",
        metavar="GPUS",
        help="GPUs that may be used in shares (lockstep.dev/gpu-share), and how: all; none; indices; or "
        "'0-3: mps; 4: watch timeslice=long; 5: whole' with one of whole, auto, kernel, mps, watch, "
        "none (default: all)",
    )
    run.add_argument(
        "--share-config",
        type=Path,
        metavar="DIR",
        help="read at every look instead: a file by this node's name, or default, with what --share-gpus "
        "takes; a change disturbs nobody who runs",
    )
    run.add_argument(
        "--sharing-dir",
        type=Path,
        metavar="DIR",
        help="where `lockstep-agent gpu-setup` works, which sets GPUs up for MPS and for time slices "
        "(default: neither can be had)",
    )
    run.add_argument(
        "--gpu-memory",
        choices=("auto", "watch", "none"),
        default="auto",
        help="caps of memory (lockstep.dev/gpu-memory) on GPUs for which nothing else is said: auto: kept "
        "by the kernel where driver and kernel can, else watched where the driver tells of processes "
        "(default); watch: whoever exceeds its own is evicted; none: not at all",
    )


def _ways(text: str) -> str:
    try:
        parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
