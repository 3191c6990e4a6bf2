"""The end of a child process that was asked to end."""

import subprocess


def wait_or_kill(process: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Waits until the process has ended, and kills it if it has not after patience_s."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
