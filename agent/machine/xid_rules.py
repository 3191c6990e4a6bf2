"""Classifies XIDs, the driver's numbers for errors. Pure.

Many XIDs are faults of one process, and the next process runs well. Others leave the GPU in need of
a reset. An XID that is not in the table is reported and has no effect. Where the driver reports a
recovery action (from R565 on), that decides, and the table only starts a hold-down.

The table follows the column "Resolution Bucket (Immediate Action)" of CATALOGUE: RESET_GPU,
RESTART_BM and RESTART_VM are RESET. Three differ:

- 109 is PROGRAM, as NVIDIA's device plugin has it: a program that hangs causes it, and the drivers
  for which the catalogue asks for a reset (R570 and newer) report a recovery action.
- 144 to 150 (NVLink 5) have 94 subcodes. 45 of them are to be ignored, others need a reset. NVML
  does not report the subcode, but every driver for GPUs with NVLink 5 reports a recovery action,
  and the survey sees the links. So they are LOOK.
- 74 (LINK) is also what a healthy GPU reports of the links to a GPU that failed.
"""

from typing import Literal

from agent.machine.findings import Finding

CATALOGUE = (
    "docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, the revision with XIDs 1 to 172 "
    "and the applicability columns A100, H100, B100, GB200"
)

Class = Literal["program", "restart", "reset", "link", "look", "unknown"]

PROGRAM: Class = "program"  # the process is at fault; the GPU is healthy
RESTART: Class = "restart"  # the GPU is healthy again when the affected process has ended
RESET: Class = "reset"  # the GPU is unhealthy until it is reset
LINK: Class = "link"  # as RESET, unless a GPU at the far end of an NVLink is lost
LOOK: Class = "look"  # the next survey shows whether the GPU is healthy
UNKNOWN: Class = "unknown"

XIDS: dict[int, tuple[Class, str]] = {
    13: (PROGRAM, "graphics engine exception"),
    31: (PROGRAM, "GPU memory page fault"),
    43: (PROGRAM, "the GPU stopped processing"),
    45: (PROGRAM, "preemptive cleanup"),
    46: (RESET, "the GPU stopped processing"),
    48: (RESET, "double-bit memory error"),
    62: (RESET, "internal microcontroller halt"),
    63: (LOOK, "memory page retired or row remapped"),
    64: (RESET, "memory page retirement or row remapping failed"),
    68: (PROGRAM, "video engine exception"),
    74: (LINK, "NVLink error"),
    79: (RESET, "the GPU has fallen off the bus"),
    92: (LOOK, "high rate of single-bit memory errors"),
    94: (RESTART, "contained memory error"),
    95: (RESET, "uncontained memory error"),
    109: (PROGRAM, "context switch timeout"),
    110: (RESET, "security fault"),
    119: (RESET, "the GPU system processor does not answer"),
    120: (RESET, "the GPU system processor failed"),
    136: (RESET, "NVLink training failed"),
    140: (RESET, "unrecovered memory error"),
    143: (RESET, "GPU initialization failed"),
    **dict.fromkeys(range(144, 151), (LOOK, "NVLink error")),
    151: (RESET, "key rotation error"),
    154: (LOOK, "the recovery action changed"),
    155: (RESET, "NVLink down by software"),
    156: (RESET, "a resource was retired"),
    158: (RESET, "fatal GPU timeout"),
}


def classify(code: int) -> tuple[Class, Finding]:
    kind, words = XIDS.get(code, (UNKNOWN, "not a known XID"))
    return kind, Finding("xid", f"XID {code}: {words}")
