#!/usr/bin/env python3
"""nvidia-smi compute-policy -i UUID --set-timeslice N, for machines without GPUs: a line in the file
fake-nvml.timeslices beside the fake NVML library's profile."""

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    match arguments:
        case ["compute-policy", "-i", uuid, "--set-timeslice", number] if number in set("0123"):
            beside = Path(
                os.environ.get("LOCKSTEP_FAKE_NVML") or Path(__file__).with_name("x")
            ).parent
            profile = beside / "fake-nvml.profile"
            if f"uuid {uuid}\n" not in profile.read_text():
                print("No devices were found")
                return 6
            with (beside / "fake-nvml.timeslices").open("a") as file:
                file.write(f"{uuid} {number}\n")
            print(f"Successfully set timeslice to: {number}")
            return 0
    print(f"Invalid combination of input arguments: {' '.join(arguments)}")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
