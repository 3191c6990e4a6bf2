"""The console's what-if: each question is answered by a process of its own, one at a time.

    asked = WhatIfProcess(command, api, scheduler, memory_mib=1024)
    change = parse_change(body)                 # may raise RequestRefused
    await asked.ask(change, token)              # JSON; may raise RequestRefused; a cancelled caller ends the process

The scheduler's part is to start the process and to wait. The question, with the asking user's token, goes through a
pipe: it stands in no file, argument or variable.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence

import orjson

from central.model.json_types import Json
from protos.common.http_server import RequestRefused

ANSWER_MOST = 4 << 20  # bytes
WAITING_MOST = 4  # questions; later ones are refused
TIME_S = 300.0  # of one question, from its start
NAMES_MOST, NAME_MOST = 20, 300
LISTS = ("cordon", "drain", "queue", "without")
SPANS = ("1h", "24h", "7d")


class WhatIfProcess:
    """command: of the worker. api, scheduler: where it finds both; central.cli.what_if.worker says in which form."""

    def __init__(
        self,
        command: Sequence[str],
        api: Json,
        scheduler: Json,
        *,
        memory_mib: int,
        time_s: float = TIME_S,
    ) -> None:
        self._command, self._api, self._scheduler = command, api, scheduler
        self._memory_mib, self._time_s = memory_mib, time_s
        self._one = asyncio.Semaphore(1)
        self._asking = 0
        self._users: set[str] = set()

    async def ask(self, change: Json, user: str, token: str) -> bytes:
        if user in self._users:
            raise RequestRefused(429, "your last what-if is not answered yet")
        if self._asking > WAITING_MOST:
            raise RequestRefused(429, "too many others ask what-if now; try again later")
        self._users.add(user)
        self._asking += 1
        try:
            async with self._one:
                return await self._answered(change, token)
        finally:
            self._asking -= 1
            self._users.discard(user)

    async def _answered(self, change: Json, token: str) -> bytes:
        question = {
            "api": self._api,
            "scheduler": self._scheduler,
            "token": token,
            "memory_mib": self._memory_mib,
            "change": change,
        }
        folder = tempfile.mkdtemp(prefix="lockstep-what-if-")
        try:
            async with asyncio.timeout(self._time_s):
                return _checked(await self._run(orjson.dumps(question), folder))
        except TimeoutError:
            why = f"not answered within {self._time_s:.0f} s; ask with the command lockstep what-if"
            raise RequestRefused(503, why) from None
        finally:
            await asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, folder, True)

    async def _run(self, question: bytes, folder: str) -> tuple[bytes, int]:
        """Returns the output of the process, and its exit code. Kills it if the caller gives up."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": folder, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(question + b"\n")  # stays open: its end is the end of the process
            told = b""
            while part := await process.stdout.read(1 << 16):
                told += part
                if len(told) > ANSWER_MOST:
                    raise RequestRefused(503, "the answer is too long")
            return told, await process.wait()
        finally:
            process.stdin.close()
            if process.returncode is None:
                process.kill()
            while await process.stdout.read(1 << 16):
                pass
            await process.wait()


def _checked(done: tuple[bytes, int]) -> bytes:
    """Raises RequestRefused."""
    told, code = done
    try:
        answer = orjson.loads(told)
    except ValueError:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise RequestRefused(503, f"the simulation failed ({how}); try again") from None
    if "error" in answer:
        raise RequestRefused(int(answer["status"]), str(answer["error"])[:2000])
    return told


def parse_change(body: bytes) -> Json:
    """Types and sizes; whether the names exist is found out later. Raises RequestRefused."""
    try:
        given = orjson.loads(body)
    except ValueError:
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(given, dict):
        raise RequestRefused(400, "the body is not an object")
    if unknown := given.keys() - {*LISTS, "submit", "until"}:
        raise RequestRefused(400, f'unknown field "{min(map(str, unknown)):.50}"')
    for key in LISTS:
        names = given.get(key, [])
        if not isinstance(names, list) or len(names) > NAMES_MOST:
            raise RequestRefused(400, f"{key}: must be a list of at most {NAMES_MOST} names")
        if not all(isinstance(name, str) and 0 < len(name) <= NAME_MOST for name in names):
            raise RequestRefused(400, f"{key}: a name must have 1 to {NAME_MOST} characters")
    if not isinstance(given.get("submit", ""), str):
        raise RequestRefused(400, "submit: must be text")
    if given.get("until", SPANS[1]) not in SPANS:
        raise RequestRefused(400, f"until: must be one of {', '.join(SPANS)}")
    if not any(given.get(key) for key in (*LISTS, "submit")):
        raise RequestRefused(400, "name a change")
    return given
