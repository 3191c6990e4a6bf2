"""The console in a headless Chromium: beside a loop with a constructed cluster, and served by a real scheduler process
with hollow nodes and real agents."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, LocalCluster, free_port
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.central.server.test_scheduler_process import reported, submit
from tests.central.server.web.console_world import cluster, served
from tests.fakes.chromium import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CONTROLS = """
window.controls = () => controls.all.filter((each) => !each.disabled && each.getClientRects().length);
controls.all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
"""
LIVE = "document.getElementById('state').textContent.startsWith('live')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser.started(tmp_path) as made:
        yield made


def text(page: Page, where: str) -> str:
    return str(page.value(f"document.querySelector({where!r}).innerText"))


def test_the_page_shows_the_cluster_and_obeys_the_keyboard(browser: Browser) -> None:
    with served(cluster(8)) as (server, _):
        page = browser.page(f"http://127.0.0.1:{server.port}/#token=admin", width=1280, height=900)
        page.until(LIVE)
        page.until("document.querySelectorAll('#waiting tbody tr').length == 2")
        assert page.value("location.href") == f"http://127.0.0.1:{server.port}/"
        assert "never" in text(page, "#waiting")
        assert "no node has 9 GPUs" in text(page, "#waiting")
        assert "borrowed" in text(page, "#queues")
        page.value("document.getElementById('racks').focus()")
        page.key("ArrowDown")
        page.key("ArrowDown")
        page.until("document.getElementById('chosen').textContent.startsWith('node-0001')")
        page.key("Enter")
        page.until("document.querySelectorAll('#detail-body dt').length == 8")
        assert "GPU 3" in text(page, "#detail-body .bad ~ dl .bad")
        page.key("ArrowRight")
        page.until("document.getElementById('chosen').textContent.startsWith('node-0004')")
        page.value("document.querySelector('#waiting button.link').click()")
        page.until(
            "document.getElementById('detail-body').innerText.includes('Pods') || "
            "document.querySelector('#detail-body table') !== null"
        )
        assert page.errors == []


def test_colours_of_the_map_are_those_of_the_scheme(browser: Browser) -> None:
    with served(cluster(4)) as (server, _):
        url = f"http://127.0.0.1:{server.port}/#token=admin"
        seen = []
        for dark in (False, True):
            page = browser.page(url, width=1000, height=700, dark=dark)
            page.until(LIVE)
            seen.append(page.value("getComputedStyle(document.body).backgroundColor"))
            pixels = page.value(
                "(() => { const c = document.getElementById('racks'); const d = c.getContext('2d')"
                ".getImageData(0, 0, c.width, c.height).data; const s = new Set();"
                "for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) s.add(`${d[i]},${d[i+1]},${d[i+2]}`);"
                "return s.size; })()"
            )
            assert pixels > 4  # free, unhealthy, and several jobs
            assert page.errors == []
        assert seen[0] != seen[1]


def test_a_phone_needs_no_scrolling_sideways(browser: Browser) -> None:
    with served(cluster(8)) as (server, _):
        page = browser.page(f"http://127.0.0.1:{server.port}/#token=admin", width=360, height=740)
        page.until(LIVE)
        assert page.value("document.documentElement.scrollWidth") <= 360
        page.until("document.querySelectorAll('#queues tbody tr').length == 5")
        wide = "each.scrollWidth > each.clientWidth"
        tables = "[...document.querySelectorAll('.scroll')]"
        assert page.value(f"{tables}.length") >= 3
        cut = f"{tables}.filter((each) => {wide}).map((each) => each.firstChild.ariaLabel)"
        assert page.value(cut) == [], "figures are cut off"
        label = "getComputedStyle(document.querySelector('#queues td.number'), '::before').content"
        assert "used" in page.value(label)


@pytest.mark.parametrize("nodes", [8, 200, 5000])
def test_every_control_is_reached_by_keyboard(browser: Browser, nodes: int) -> None:
    """By Tab, in the order of the page, with a focus that can be seen."""
    with served(cluster(nodes)) as (server, _):
        page = browser.page(f"http://127.0.0.1:{server.port}/#token=admin", width=1280, height=900)
        page.until(LIVE)
        page.until("document.querySelectorAll('#waiting button.link').length == 2")
        page.value(CONTROLS)
        wanted = page.value("controls().map((each) => controls.all.indexOf(each))")
        assert len(wanted) >= 6
        seen: list[int] = []
        for _ in range(len(wanted) + 1):
            page.key("Tab")
            at = page.value("controls.all.indexOf(document.activeElement)")
            if at < 0 or at in seen:
                break
            style = "getComputedStyle(document.activeElement)"
            assert page.value(f"{style}.outlineStyle != 'none' || {style}.boxShadow != 'none'"), at
            seen.append(at)
        assert seen == wanted


def test_the_focus_stays_when_the_tables_are_replaced(browser: Browser) -> None:
    with served(cluster(8)) as (server, put):
        page = browser.page(f"http://127.0.0.1:{server.port}/#token=admin", width=1280, height=900)
        page.until("document.querySelectorAll('#waiting button.link').length == 2")
        page.value("window.link = document.querySelectorAll('#waiting button.link')[1]")
        page.value("window.link.focus()")
        put(factories.pod("another", 9, queue="prod"))
        page.until("!window.link.isConnected")
        page.until("document.activeElement.textContent === window.link.textContent")


def test_without_a_valid_token_it_asks_for_one(browser: Browser) -> None:
    with served(cluster(2)) as (server, _):
        page = browser.page(f"http://127.0.0.1:{server.port}/", width=800, height=600)
        page.until("!document.getElementById('login').hidden")
        for token, shown in (
            ("wrong", "!document.getElementById('login').hidden && state.textContent"),
            ("admin", LIVE),
        ):
            page.value(f"token.value = '{token}'; document.querySelector('#login button').click()")
            page.until(shown)


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalCluster, int]]:
    nodes = [
        HollowNode(f"n{at}", {RACK: f"r{at // 2}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for at in range(4)
    ]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    port = free_port()
    with LocalCluster(nodes, flags=[f"--console-listen=127.0.0.1:{port}"]) as made:
        made.start_api()
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        made.start_agents()
        made.wait("the agents", lambda: reported(made))
        yield made, port


def test_a_real_scheduler(box: tuple[LocalCluster, int], browser: Browser) -> None:
    cluster, port = box
    token = cluster.token_file.read_text()
    page = browser.page(f"http://localhost:{port}/#token={token}", width=1200, height=800)
    page.until(LIVE)
    submit(cluster, "train", 2, 8)
    page.until("document.getElementById('legend').textContent.includes('default/train 16')")
    submit(cluster, "giant", 3, 8)
    page.until("document.getElementById('waiting').textContent.includes('default/giant')")
    page.value("document.querySelector('#waiting button.link').click()")
    page.until("document.querySelectorAll('#detail-body tbody tr').length == 3")
    assert page.errors == []


def test_what_if_on_a_real_scheduler(box: tuple[LocalCluster, int], browser: Browser) -> None:
    """Two nodes run `train`, and `giant` waits for three: it would start if `train` ended, and not with a rack cordoned."""
    cluster, port = box
    token = cluster.token_file.read_text()
    submit(cluster, "train", 2, 8)
    page = browser.page(f"http://localhost:{port}/#token={token}", width=1200, height=800)
    page.until(LIVE)
    page.until("document.getElementById('legend').textContent.includes('default/train 16')")
    submit(cluster, "giant", 3, 8)
    page.until("document.getElementById('waiting').textContent.includes('default/giant')")
    form = "document.getElementById('what-if-form')"
    page.value(f"{form}.dispatchEvent(new Event('focusin'))")
    places = "[...document.querySelectorAll('#what-if-places option')].map(each => each.value)"
    assert page.value(places)[:3] == ["block=b", "rack=r0", "rack=r1"]
    page.value("document.querySelector('#what-if-changes select').value = 'without'")
    page.value(
        "document.querySelector('#what-if-changes select').dispatchEvent(new Event('change'))"
    )
    page.value("document.querySelector('#what-if-changes input').value = 'default/train'")
    page.value(f"{form}.requestSubmit()")
    page.until("document.getElementById('what-if-state').textContent.includes('simulating')")
    answered(page)
    rows = "[...document.querySelectorAll('#what-if-result table[aria-label^=Gangs] tbody tr')].map(each => each.innerText)"
    [giant] = page.value(rows)
    assert "default/giant" in giant
    assert "stays pending: needs 3 pods x 8 GPUs" in giant
    assert "starts at once on n0, n1, n2" in giant
    page.value("document.querySelector('#what-if-result button.link').click()")
    page.value("document.querySelector('#what-if-changes input').value = 'default/nothere'")
    page.value(f"{form}.requestSubmit()")
    page.until("document.getElementById('what-if-state').className == 'bad'", patience_s=LONG_S)
    assert "no job or gang named default/nothere" in text(page, "#what-if-state")
    assert [each for each in page.errors if "400" not in each] == []
    assert cluster.topology() is not None  # the scheduler still answers


LONG_S = 320.0  # a process starts and simulates, on a machine that may have much else to do


def answered(page: Page) -> None:
    page.until(
        "document.getElementById('what-if-state').textContent.startsWith('compared')",
        patience_s=LONG_S,
    )
