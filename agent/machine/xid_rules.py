"""Classifies XIDs, the driver's numbers for errors. Pure.

Many XIDs are faults of one process, and the next process runs well. Others leave the GPU in need of
a reset. An XID that is not in the table is reported and has no effect.
"""

from typing import Literal

from agent.machine.findings import Finding

Class = Literal["program", "restart", "reset", "look", "unknown"]

PROGRAM: Class = "program"  # the process is at fault; the GPU is healthy
RESTART: Class = "restart"  # the GPU is healthy again when the affected process has ended
RESET: Class = "reset"  # the GPU is unhealthy until it is reset
LOOK: Class = "look"  # the next survey shows whether the GPU is healthy
UNKNOWN: Class = "unknown"

XIDS: dict[int, tuple[Class, str]] = {
    13: (PROGRAM, "graphics engine exception"),
    31: (PROGRAM, "GPU memory page fault"),
    43: (PROGRAM, "the GPU stopped processing"),
    45: (PROGRAM, "preemptive cleanup"),
    48: (RESET, "double-bit memory error"),
    62: (RESET, "internal microcontroller halt"),
    63: (LOOK, "memory page retired or row remapped"),
    64: (RESET, "memory page retirement or row remapping failed"),
    68: (PROGRAM, "video engine exception"),
    74: (RESET, "NVLink error"),
    79: (RESET, "the GPU has fallen off the bus"),
    92: (LOOK, "high rate of single-bit memory errors"),
    94: (RESTART, "contained memory error"),
    95: (RESET, "uncontained memory error"),
    109: (PROGRAM, "context switch timeout"),
    119: (RESET, "the GPU system processor does not answer"),
    120: (RESET, "the GPU system processor failed"),
    140: (RESET, "unrecovered memory error"),
    143: (RESET, "GPU initialization failed"),
    **dict.fromkeys(range(144, 151), (RESET, "NVLink error")),
    154: (LOOK, "the recovery action changed"),
}


def classify(code: int) -> tuple[Class, Finding]:
    kind, words = XIDS.get(code, (UNKNOWN, "not a known XID"))
    return kind, Finding("xid", f"XID {code}: {words}")
