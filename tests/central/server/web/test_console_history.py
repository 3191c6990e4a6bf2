"""The console's slider, in a headless Chromium and over HTTP: the cluster at a past time, curves, and rights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.central.server.web.console_world import Rights, cluster, remembered, served
from tests.central.server.web.test_web_server import ask, data
from tests.fakes.chromium import Browser

LIVE = "document.getElementById('state').textContent.startsWith('live')"
SHOWN = "document.documentElement.dataset.shown"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser.started(tmp_path) as made:
        yield made


@pytest.mark.slow
def test_the_slider_goes_to_the_past_and_back(browser: Browser, tmp_path: Path) -> None:
    past = remembered(tmp_path / "history.db", 8)
    with served(cluster(8), past=past) as (server, _):
        page = browser.page(f"http://127.0.0.1:{server.port}/#token=admin", width=1280, height=900)
        page.until(f"{LIVE} && !document.getElementById('time').hidden")
        used = "[...document.querySelectorAll('#totals div')].find(d => d.innerText.startsWith('used')).innerText"
        now = page.value(used)
        first = past.times()[0]
        page.value("slider = document.getElementById('slider'); slider.focus()")
        page.value("slider.value = 0; slider.dispatchEvent(new Event('input'))")
        page.until(f"{SHOWN} === '{first}'")
        assert page.value(used) != now
        assert page.value("document.documentElement.classList.contains('past')")
        assert "now" not in page.value("document.getElementById('moment').textContent")
        legend = "document.getElementById('body').innerText"
        assert "sweep" in page.value(legend)
        assert "train" not in page.value(legend)  # these began later
        page.key("ArrowRight")  # by keyboard
        page.until(f"{SHOWN} === '{past.times()[1]}'")
        page.value("document.getElementById('now').click()")
        page.until(f"{SHOWN} === 'now'")
        assert page.value(used) == now
        assert "train" in page.value(legend)
        page.click(page.link("Jobs"))
        page.value("slider.value = 3; slider.dispatchEvent(new Event('input'))")
        page.until(f"{SHOWN} === '{past.times()[3]}'")
        page.click(page.link("ns/sweep"))
        page.until("document.getElementById('title').textContent === 'ns/sweep'")
        at = f"at={past.times()[3]}"
        assert page.value("location.hash") == f"#/job/ns/sweep?{at}"
        page.value("window.old = true")
        page.call("Page.reload")
        page.until(f"!window.old && {SHOWN} === '{past.times()[3]}'")
        page.until("document.getElementById('title').textContent === 'ns/sweep'")
        page.until("document.querySelectorAll('#body table[aria-label=Pods] tbody tr').length >= 1")
        page.click("document.getElementById('now')")
        page.until(f"{SHOWN} === 'now'")
        page.click(page.link("Queues"))
        page.until("document.querySelectorAll('#body svg.curve').length >= 3")
        assert page.errors == []


@pytest.mark.slow
def test_without_a_history_there_is_no_slider(browser: Browser) -> None:
    with served(cluster(2)) as (server, _):
        page = browser.page(f"http://127.0.0.1:{server.port}/#token=admin", width=1280, height=900)
        page.until(LIVE)
        assert page.value("document.getElementById('time').hidden")
        assert page.value("document.querySelectorAll('svg.curve').length") == 0
        assert page.errors == []


def test_the_past_obeys_rights(tmp_path: Path) -> None:
    past = remembered(tmp_path / "history.db", 4)
    last = past.times()[-1]
    rights = Rights(("ann", "pods", "ns"), ("bob", "nodes", ""))
    with served(cluster(4), rights, past) as (server, _):
        nodes = data(server, f"/api/nodes?at={last}")["nodes"]
        assert {each["o"] for node in nodes for each in node["h"]} >= {"ns/sweep"}
        hidden = data(server, f"/api/nodes?at={last}", "bob")["nodes"]
        assert {each["o"] for node in hidden for each in node["h"]} == {"-"}
        assert ask(server, f"/api/nodes?at={last}", "ann")[0] == 403
        assert ask(server, "/api/curves", "ann")[0] == 403
        assert ask(server, "/api/job?namespace=ns&name=sweep", "bob")[0] == 403
        found = data(server, "/api/job?namespace=ns&name=sweep", "ann")
        assert {size[1] for size in found["sizes"]} == {0, 1, 2, 3, 4, 5}
        running = data(server, f"/api/jobs?at={last}&state=running", "ann")
        assert "sweep" in {row["gang"] for row in running["rows"]}
        assert data(server, f"/api/jobs?at={last}", "bob")["rows"] == []
        assert data(server, f"/api/gang?namespace=ns&name=sweep&at={last}", "ann")["pods"]
        curves = data(server, "/api/curves")
        assert len(curves["times"]) == len(curves["queues"]["root"]) == 72
        assert ask(server, f"/api/overview?at={past.times()[0] - 1}")[0] == 404
        for at in ("x", "-1", "99999999999999"):
            assert ask(server, f"/api/overview?at={at}")[0] == 400
    with served(cluster(2)) as (server, _):
        assert data(server, "/api/history") == {"kept": False, "times": []}
        assert ask(server, "/api/curves")[0] == 404
        assert ask(server, f"/api/nodes?at={last}")[0] == 404
