"""python -m central is the command lockstep."""

import sys


def main() -> int:
    if sys.argv[1:] == [
        "--version"
    ]:  # without the parser, whose import takes longer than all the rest
        from central.server.version import version

        print(f"lockstep {version()}")
        return 0
    try:
        from central.cli.main import main as command
    except ModuleNotFoundError as error:  # pip install lockstep alone is for training images
        package = error.name
    else:
        return command()
    print(
        f"lockstep: the package {package} is missing; pip install 'lockstep[central]'",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
