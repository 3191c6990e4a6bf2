"""Classifies XIDs, the driver's numbers for errors. Pure.

Many XIDs are faults of one process, and the next process runs well. Others leave the GPU in need of
a reset. An XID that is not in the table is reported and has no effect. Where the driver reports a
recovery action (from R565 on), that decides, and the table only starts a hold-down.

The table follows the column "Resolution Bucket (Immediate Action)" of CATALOGUE: RESET_GPU,
RESTART_BM and RESTART_VM are RESET, RESTART_APP of an engine is PROGRAM, and what is to be ignored or
looked into is LOOK. The catalogue gives no resolution for 162 to 172. Others differ:

- 109 is PROGRAM, as NVIDIA's device plugin has it: a program that hangs causes it, and the drivers
  for which the catalogue asks for a reset (R570 and newer) report a recovery action.
- 144 to 150 (NVLink 5) have 94 subcodes. 45 of them are to be ignored, others need a reset. NVML
  does not report the subcode, but every driver for GPUs with NVLink 5 reports a recovery action,
  and the survey sees the links. So they are LOOK.
- 74 (LINK) is also what a healthy GPU reports of the links to a GPU that failed.
- 167 and 169 are RESET, as the like errors 158 and 62.
"""

from typing import Literal

from agent.machine.findings import Finding

CATALOGUE = (
    "docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, the revision with XIDs 1 to 172 "
    "and the applicability columns A100, H100, B100, GB200"
)

Class = Literal["program", "restart", "reset", "link", "look", "unknown"]

PROGRAM: Class = "program"  # the process is at fault; the GPU is healthy
RESTART: Class = "restart"  # only the affected process has to end
RESET: Class = "reset"  # the GPU is unhealthy until it is reset
LINK: Class = "link"  # as RESET, unless a GPU at the far end of an NVLink is lost
LOOK: Class = "look"  # the next survey shows whether the GPU is healthy
UNKNOWN: Class = "unknown"

NEWEST = 172  # in CATALOGUE

XIDS: dict[int, tuple[Class, str]] = {
    **dict.fromkeys(range(1, NEWEST + 1), (LOOK, "a code that present drivers do not use")),
    **dict.fromkeys(
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
        (PROGRAM, "copy engine exception"),
    ),
    **dict.fromkeys((82, *range(99, 106)), (PROGRAM, "JPEG engine exception")),
    **dict.fromkeys((68, 83, 84, 88, 89, 96, 97, 98), (PROGRAM, "video decoder exception")),
    **dict.fromkeys((86, 139), (PROGRAM, "optical flow engine exception")),
    **dict.fromkeys((11, 25, 32, 80), (PROGRAM, "invalid commands to the GPU")),
    **dict.fromkeys((8, 43), (PROGRAM, "the GPU stopped processing")),
    **dict.fromkeys((37, 38), (LOOK, "driver firmware error")),
    **dict.fromkeys((66, 67), (LOOK, "illegal access by the driver")),
    **dict.fromkeys((106, 107), (LOOK, "a test message")),
    **dict.fromkeys(range(144, 151), (LOOK, "NVLink error")),
    13: (PROGRAM, "graphics engine exception"),
    31: (PROGRAM, "GPU memory page fault"),
    44: (LOOK, "graphics engine fault in a context switch"),
    45: (PROGRAM, "preemptive cleanup"),
    46: (RESET, "the GPU stopped processing"),
    48: (RESET, "double-bit memory error"),
    54: (LOOK, "auxiliary power is not connected"),
    60: (PROGRAM, "video processor exception"),
    62: (RESET, "internal microcontroller halt"),
    63: (LOOK, "memory page retired or row remapped"),
    64: (RESET, "memory page retirement or row remapping failed"),
    69: (PROGRAM, "graphics engine class error"),
    74: (LINK, "NVLink error"),
    78: (LOOK, "a vGPU did not start"),
    79: (RESET, "the GPU has fallen off the bus"),
    92: (LOOK, "high rate of single-bit memory errors"),
    93: (LOOK, "wear limit of the InfoROM exceeded"),
    94: (RESTART, "contained memory error"),
    95: (RESET, "uncontained memory error"),
    108: (LOOK, "NVLink translation error at the far end"),
    109: (PROGRAM, "context switch timeout"),
    110: (RESET, "security fault"),
    119: (RESET, "the GPU system processor does not answer"),
    120: (RESET, "the GPU system processor failed"),
    121: (LOOK, "error of the link to the CPU"),
    136: (RESET, "NVLink training failed"),
    137: (LOOK, "NVLink privilege error"),
    140: (RESET, "unrecovered memory error"),
    141: (LOOK, "CUDA fast path error"),
    142: (LOOK, "video encoder exception"),
    143: (RESET, "GPU initialization failed"),
    151: (RESET, "key rotation error"),
    152: (LOOK, "memory error of the deep learning accelerator"),
    153: (LOOK, "timeout of the deep learning accelerator"),
    154: (LOOK, "the recovery action changed"),
    155: (RESET, "NVLink down by software"),
    156: (RESET, "a resource was retired"),
    157: (LOOK, "a resource could not be retired"),
    158: (RESET, "fatal GPU timeout"),
    159: (LOOK, "error of the coherent link"),
    160: (LOOK, "a channel was retired"),
    161: (LOOK, "a channel could not be retired"),
    162: (LOOK, "power smoothing is on again"),
    163: (LOOK, "power smoothing is off"),
    164: (LOOK, "power smoothing hardware is nearly worn out"),
    165: (LOOK, "power smoothing hardware is worn out"),
    166: (LOOK, "NVLink traffic before its encryption was set up"),
    167: (RESET, "fatal PCIe timeout"),
    168: (LOOK, "errors in protected memory, less memory is left"),
    169: (RESET, "security processor halt"),
    170: (LOOK, "NVLink interrupt in confidential mode"),
    171: (LOOK, "details of XID 48: the memory error is in DRAM"),
    172: (LOOK, "details of XID 48: the memory error is in SRAM"),
}


def classify(code: int) -> tuple[Class, Finding]:
    kind, words = XIDS.get(code, (UNKNOWN, "not a known XID"))
    return kind, Finding("xid", f"XID {code}: {words}")
