"""Imports modules, then runs what it is told by one line of JSON at a file descriptor. lockstep-launch passes this text
to the interpreter of the command, which may lack the package, so it imports nothing of it.

python -c TEXT FD MODULE,..."""

import importlib
import json
import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType


def main(descriptor: str, modules: str) -> None:
    """The line has the arguments of the program, whether the first is a module's name, and the environment. Without a
    line, because the launcher has ended or needs the process no more, it ends."""
    for name in modules.split(","):
        with suppress(Exception):  # the program itself says what it lacks
            importlib.import_module(name)
    with os.fdopen(int(descriptor)) as lines:
        line = lines.readline()
    if not line.endswith("\n"):
        return
    given = json.loads(line)
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.argv[:] = program = given["program"]
    if given["is_module"]:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(Path(program[0]).absolute().parent)
    code = compile(Path(program[0]).read_bytes(), program[0], "exec")
    module = ModuleType("__main__")
    vars(module).update(__file__=program[0], __builtins__=__builtins__)
    replaced, sys.modules["__main__"] = sys.modules["__main__"], module
    exec(code, vars(module))
    del replaced


if __name__ == "__main__":
    main(*sys.argv[1:])
