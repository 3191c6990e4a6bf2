"""Flags for GPU sharing."""

import argparse
from pathlib import Path

from agent.sharing.sharing_mode import parse


def add_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--share-gpus",
        type=_ways,
        default="all",
        metavar="GPUS",
        help="GPUs that pods may share (lockstep.dev/gpu-share), and how memory caps are enforced: "
        "all; none; indices; or '0-3: mps; 4: watch timeslice=long; 5: whole' with one of "
        "whole, auto, kernel, mps, watch, none (default: all)",
    )
    run.add_argument(
        "--share-config",
        type=Path,
        metavar="DIR",
        help="directory that replaces --share-gpus and is read at each survey: the file named "
        "after the node, else the file default, in the syntax of --share-gpus; changes do not "
        "affect running pods",
    )
    run.add_argument(
        "--sharing-dir",
        type=Path,
        metavar="DIR",
        help="directory shared with `lockstep-agent gpu-setup`, which sets GPUs up for MPS and "
        "time slices (default: neither is available)",
    )
    run.add_argument(
        "--gpu-memory",
        choices=("auto", "watch", "none"),
        default="auto",
        help="enforcement of memory caps (lockstep.dev/gpu-memory) on GPUs that are shared by "
        "auto: auto: by the kernel if driver and kernel support it, else by watch if the "
        "driver reports memory by process (default); watch: pods that exceed their cap are "
        "evicted; none: not enforced",
    )


def _ways(text: str) -> str:
    try:
        parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
