"""What an XID, the driver's number for an error, means for the GPU. Pure.

Many XIDs are the fault of a program, and the next one runs well; some leave the GPU in need of a reset. What is not
in the table is said, and nothing is done.
"""

from typing import Literal

from agent.machine.findings import Finding

# program: the GPU is well. restart: it is, once the program that was hit has gone. reset: it is not
# until it was reset. look: the readings tell. All but the first are said to people.
Class = Literal["program", "restart", "reset", "look", "unknown"]

PROGRAM: Class = "program"
RESTART: Class = "restart"
RESET: Class = "reset"
LOOK: Class = "look"
UNKNOWN: Class = "unknown"

XIDS: dict[int, tuple[Class, str]] = {
    13: (PROGRAM, "a program made the graphics engine fail"),
    31: (PROGRAM, "a program reached for memory that is not its own"),
    43: (PROGRAM, "a program made the GPU stop its work"),
    45: (PROGRAM, "a program's work was cleaned up"),
    48: (RESET, "a memory error of two bits"),
    62: (RESET, "the GPU's microcontroller halted"),
    63: (LOOK, "a memory page or row was retired"),
    64: (RESET, "a memory page or row could not be retired"),
    68: (PROGRAM, "a program made the video engine fail"),
    74: (RESET, "NVLink failed"),
    79: (RESET, "the GPU has fallen off the bus"),
    92: (LOOK, "many memory errors of one bit"),
    94: (RESTART, "a memory error, contained in one program"),
    95: (RESET, "a memory error that was not contained"),
    109: (PROGRAM, "a program took too long to switch"),
    119: (RESET, "the GPU's system processor does not answer"),
    120: (RESET, "the GPU's system processor failed"),
    140: (RESET, "a memory error that was not recovered"),
    143: (RESET, "the GPU could not be initialised"),
    **dict.fromkeys(range(144, 151), (RESET, "NVLink failed")),
    154: (LOOK, "the driver changed what it asks for"),
}


def classify(code: int) -> tuple[Class, Finding]:
    kind, words = XIDS.get(code, (UNKNOWN, "not in our table"))
    return kind, Finding("xid", f"XID {code}: {words}")
