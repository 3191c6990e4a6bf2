"""Runs one of our modules as a program: python -m lockstep_scheduler.run MODULE [ARGUMENT...].
protos.common.own_program uses it."""

import runpy
import sys

if __name__ == "__main__":
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
