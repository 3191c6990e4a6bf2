"""python -m central is the command lockstep."""

import sys

from protos.common import command_output


def main() -> int:
    return command_output.run("lockstep", _run)


def _run() -> int:
    # without the parser, whose import takes longer than all the rest
    if sys.argv[1:] == ["--version"]:
        from central.server.version import version

        print(f"lockstep {version()}")
        return 0
    from central.cli.main import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
