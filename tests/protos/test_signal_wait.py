"""A signal ends the wait, also one that does not wake the main thread."""

import subprocess
import sys

PROGRAM = """
import os, signal, threading, time
from queue import SimpleQueue
from protos.common import signal_wait

queue = SimpleQueue()
signal.signal(signal.SIGTERM, lambda *_: queue.put("ended"))
started = threading.Event()

def other():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    started.set()
    threading.Event().wait()

# The main thread blocks the signal, so the other thread receives it. The main thread sleeps on.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
threading.Thread(target=other, daemon=True).start()
started.wait()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
print(signal_wait.next_item(queue), flush=True)
os._exit(0)
"""


def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")
