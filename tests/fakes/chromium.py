"""A headless Chromium, driven by the DevTools protocol. Whoever has none skips: LOCKSTEP_CHROMIUM names one that is
not on the PATH.

    with Browser.started(tmp_path) as browser:
        page = browser.page("http://localhost:9480/", width=1200, height=800, dark=True)
        page.until("document.title == 'Lockstep'")
        page.key("ArrowDown")
        page.screenshot(tmp_path / "page.png")
"""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0", "--hide-scrollbars",
)  # fmt: skip
PATIENCE_S = 50.0
Json = dict[str, Any]


def axe() -> str:
    """The source of axe-core, which checks pages for accessibility. Whoever has none skips."""
    file = Path(os.environ.get("LOCKSTEP_AXE", Path.home() / ".cache/axe-core/package/axe.min.js"))
    if not file.exists():
        pytest.skip(
            "there is no axe-core: npm pack axe-core, unpack it into ~/.cache/axe-core (or set LOCKSTEP_AXE)"
        )
    return file.read_text()


class Page:
    """One tab. errors: what the page logged as an error, and exceptions that nothing caught."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self.errors: list[str] = []

    def call(self, method: str, **parameters: Any) -> Json:
        return self._browser.call(method, parameters, self._session)

    def value(self, expression: str) -> Any:
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, expression: str, patience_s: float = PATIENCE_S) -> Any:
        """Waits until the expression is true, and returns its value. While the page loads it may throw."""
        deadline = time.monotonic() + patience_s
        safe = f"(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()"
        while not (found := self.value(safe)):
            assert time.monotonic() < deadline, f"waited for {expression}; errors: {self.errors}"
            time.sleep(0.1)
        return found

    def key(self, key: str) -> None:
        code = {
            "Tab": 9,
            "Enter": 13,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def click(self, found: str) -> None:
        """Clicks into the middle of an element, an expression, with the mouse, once it is shown. A click that meets
        another element, because the page moved meanwhile, does nothing and is repeated."""
        guard = (
            f"window.hit = null; document.addEventListener('click', (event) => {{ window.hit = "
            f"Boolean(({found})?.contains(event.target)); if (!window.hit) {{ event.preventDefault(); "
            "event.stopPropagation(); } }, { once: true, capture: true })"
        )
        for _ in range(50):
            self.until(f"({found}).getClientRects().length")
            self.value(guard)
            box = self.until(
                f"(({found}).scrollIntoView({{block: 'center'}}), ({found}).getBoundingClientRect().toJSON())"
            )
            self.click_at(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            if self.until("window.hit !== null && [window.hit]") == [True]:
                return
        raise AssertionError(f"{found} moves away from each click")

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def link(self, text: str, within: str = "document") -> str:
        """Returns the expression of the first link with this text."""
        return f"[...{within}.querySelectorAll('a')].find((each) => each.textContent === {text!r})"

    def screenshot(self, file: Path) -> None:
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        file.write_bytes(base64.b64decode(made["data"]))


class Browser:
    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self._process = process
        self._loop = asyncio.new_event_loop()
        self._pages: dict[str, Page] = {}
        self._number = 0
        self._http = self._wait(self._client())
        self._socket = self._wait(self._http.ws_connect(url, max_msg_size=0))

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Self]:
        program = os.environ.get("LOCKSTEP_CHROMIUM") or shutil.which("chromium")
        if program is None:
            pytest.skip("there is no chromium (Debian: apt install chromium)")
        profile = folder / "chromium"
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = profile / "DevToolsActivePort"
            deadline = time.monotonic() + PATIENCE_S
            while not (port.exists() and len(lines := port.read_text().split()) == 2):
                assert process.poll() is None, "chromium ended at once"
                assert time.monotonic() < deadline, "chromium does not start"
                time.sleep(0.05)
            browser = cls(process, f"ws://127.0.0.1:{lines[0]}{lines[1]}")
            try:
                yield browser
            finally:
                browser.close()
        finally:
            process.kill()
            process.wait()

    def page(self, url: str, *, width: int, height: int, dark: bool = False) -> Page:
        made = self.call("Target.createTarget", {"url": "about:blank"}, "")
        target = {"targetId": made["targetId"], "flatten": True}
        session = self.call("Target.attachToTarget", target, "")["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=url)
        return page

    def call(self, method: str, parameters: Json, session: str) -> Json:
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        found: Json = self._wait(self._answered(message))
        return found

    def close(self) -> None:
        self._wait(self._socket.close())
        self._wait(self._http.close())
        self._loop.close()

    async def _client(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    async def _answered(self, message: Json) -> Json:
        await self._socket.send_str(json.dumps(message))
        while True:
            got = json.loads((await self._socket.receive(timeout=PATIENCE_S)).data)
            if got.get("id") == message["id"]:
                assert "error" not in got, got["error"]
                found: Json = got["result"]
                return found
            self._note(got)

    def _note(self, event: Json) -> None:
        page, told = self._pages.get(event.get("sessionId", "")), event.get("params", {})
        if page is None:
            return
        if event["method"] == "Runtime.exceptionThrown":
            page.errors.append(str(told["exceptionDetails"].get("exception", told))[:500])
        if event["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
            page.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def _wait(self, what: Any) -> Any:
        return self._loop.run_until_complete(what)
