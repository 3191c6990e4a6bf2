"""The console in a headless Chromium: beside a loop with a constructed cluster, and served by a real scheduler process
with hollow nodes and real agents."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from central.model.facts import Fact, PodGone
from central.server.gpu_uses import GpuUses
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, free_port
from protos.names import BLOCK, RACK
from protos.topology import GpuUse
from tests.central import factories
from tests.central.server.test_scheduler_process import reported, submit
from tests.central.server.web.console_world import Rights, cluster, served
from tests.central.server.web.test_web_server import ask, data
from tests.fakes.chromium import Browser, Page, axe
from tests.fakes.eventually import eventually
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CONTROLS = """
window.controls = () => [...document.querySelectorAll(
  "a[href], button, input, select, textarea, summary, [tabindex='0']",
)].filter((each) => !each.disabled && each.getClientRects().length);
"""
VIEWS = [
    "jobs",
    "queues",
    "nodes",
    "happened",
    "map",
    "job/ns/giant",
    "job/ns/train-0",
    "node/node-0001",
]
LIVE = "document.getElementById('state').textContent.startsWith('live')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser.started(tmp_path) as made:
        yield made


def text(page: Page, where: str) -> str:
    return str(page.value(f"document.querySelector({where!r}).innerText"))


def opened(browser: Browser, port: int, view: str = "", **size: Any) -> Page:
    """The page at its first look at this view, such as jobs?state=running."""
    mark = f"#/{view}{'&' if '?' in view else '?'}token=admin" if view else "#token=admin"
    page = browser.page(
        f"http://127.0.0.1:{port}/{mark}", **({"width": 1280, "height": 900} | size)
    )
    page.until(LIVE)
    return page


def test_every_gang_that_is_shown_is_a_link_to_its_page(browser: Browser) -> None:
    """In the list of jobs, queues, nodes, a node, what happened, the map and its legend."""
    with served(cluster(8)) as (server, _):
        page = opened(browser, server.port)
        assert page.value("location.href") == f"http://127.0.0.1:{server.port}/"
        page.until("document.querySelectorAll('#body tbody tr').length === 6")
        assert "no node has 9 GPUs" in text(page, "#body")
        page.click(page.link("ns/giant"))
        page.until("document.getElementById('title').textContent === 'ns/giant'")
        page.until(
            "document.querySelectorAll('#body table[aria-label=Pods] tbody tr').length === 8"
        )
        assert "Place 1 of 1 in its queue" in text(page, "#body")
        page.click(page.link("Queues"))
        page.until("document.getElementById('title').textContent === 'Queues'")
        assert "borrowed" in text(page, "#body")
        page.click(page.link("ns/never"))
        page.until("document.getElementById('title').textContent === 'ns/never'")
        page.click(page.link("Nodes"))
        page.click(page.link("ns/train-0"))
        page.until("document.querySelectorAll('.ranks i.own').length === 16")
        page.click(page.link("node-0000"))
        page.until("document.querySelectorAll('#body dt').length === 8")
        page.click(page.link("ns/train-0"))
        page.until("document.getElementById('title').textContent === 'ns/train-0'")
        page.click(page.link("What happened"))
        page.click(page.link("ns/small"))
        page.until("document.getElementById('title').textContent === 'ns/small'")
        page.click(page.link("Map"))
        page.click(page.link("ns/small 2"))
        page.until("document.getElementById('title').textContent === 'ns/small'")
        assert "kubectl logs -n ns small" in text(page, "#body")
        assert page.errors == []


def test_a_cell_of_the_map_opens_its_job_and_keys_open_its_node(browser: Browser) -> None:
    with served(cluster(8)) as (server, _):
        page = opened(browser, server.port, "map")
        page.until("document.getElementById('legend').textContent.includes('ns/train-0')")
        box = page.value("document.getElementById('racks').getBoundingClientRect().toJSON()")
        page.click_at(box["x"] + 118 + 5, box["y"] + 20 + 20 + 9)  # GPU 0 of the first node
        page.until("document.getElementById('title').textContent === 'ns/train-0'")
        page.value("history.back()")
        page.until("!document.getElementById('map').hidden")
        page.value("document.getElementById('racks').focus()")
        page.key("ArrowDown")
        page.key("ArrowRight")
        page.until("document.getElementById('chosen').textContent.startsWith('node-0004')")
        page.key("ArrowLeft")
        page.key("ArrowDown")
        page.until("document.getElementById('chosen').textContent.startsWith('node-0001')")
        page.key("Enter")
        page.until("document.getElementById('title').textContent === 'node-0001'")
        page.until("document.querySelector('#body dt.bad')?.textContent === 'GPU 3'")
        assert page.errors == []


def test_only_racks_that_changed_are_drawn_and_a_level_is_shown_alone(browser: Browser) -> None:
    with served(cluster(200)) as (server, put):
        page = opened(browser, server.port, "map")
        page.until("document.getElementById('legend').textContent.includes('b3')")
        page.value("import('./console.js').then((each) => { window.map = each.map; })")
        page.until("window.map && map.boxes.length === 200")
        version = page.value("document.documentElement.dataset.version")
        put(factories.node("node-0007", rack="r001", block="b0", unschedulable=True))
        page.until(f"document.documentElement.dataset.version !== {version!r}")
        page.until("map.nodes.get('node-0007').x && map.drawn > 0 && map.drawn <= 8")
        page.click(
            "[...document.querySelectorAll('.domains a')].find((each) => each.textContent.startsWith('b3'))"
        )
        page.until("map.boxes.length === 8")
        assert page.value("location.hash") == "#/map?zoom=b3"
        page.click(
            "[...document.querySelectorAll('.domains a')].find((each) => each.textContent.startsWith('r049'))"
        )
        page.until("map.boxes.length === 4 && map.size.label")
        page.click(page.link("all"))
        page.until("map.boxes.length === 200")
        page.value("map.choose('node-0000'); map.choose('node-0100')")
        assert page.value("map.drawn") == 8, "the racks of both nodes"
        assert page.errors == []


def test_a_shared_gpu_shows_its_shares(browser: Browser) -> None:
    facts: list[Fact] = [
        factories.node("n0", shares=True),
        factories.report("n0", factories.topology(2, shares=True)),
    ]
    parts = [factories.part(name, share) for name, share in (("a", 25), ("b", 50))]
    with served([*facts, *parts]) as (server, _):
        page = opened(browser, server.port, "map")
        page.until("document.getElementById('legend').textContent.includes('ns/a 0.25')")
        column = (
            "(() => { const c = document.getElementById('racks'), d = c.getContext('2d').getImageData(118 + 9, 40, 1, 18)"
            ".data; const s = {}; for (let i = 0; i < d.length; i += 4) { const k = `${d[i]},${d[i+1]},${d[i+2]}`;"
            "s[k] = (s[k] || 0) + 1; } return Object.values(s).sort((a, b) => b - a); })()"
        )
        shares = page.value(column)
        assert shares[0] in (8, 9, 10), "half of the cell"
        assert len(shares) >= 3, "two owners and what is free"


def test_an_address_can_be_pasted_and_reloaded(browser: Browser) -> None:
    with served(cluster(8)) as (server, _):
        page = opened(browser, server.port, "jobs?find=train&state=running&sort=-gpus")
        page.until("document.querySelectorAll('#body tbody tr').length === 3")
        page.value("window.old = true")
        page.call("Page.reload")
        page.until("!window.old && document.querySelectorAll('#body tbody tr').length === 3")
        assert page.value("document.querySelector('[name=find]').value") == "train"
        assert page.value("document.querySelector('[aria-sort]').textContent") == "GPUs"
        page.click("document.querySelector('[name=find]')")
        page.value("document.querySelector('[name=find]').value = 'train-1'")
        page.value(
            "document.querySelector('[name=find]').dispatchEvent(new Event('input', {bubbles: true}))"
        )
        page.until("document.querySelectorAll('#body tbody tr').length === 1")
        assert "find=train-1" in page.value("location.hash")
        page.click(page.link("pending 0"))
        page.until("document.getElementById('body').textContent.includes('No job is like that')")
        page.click(page.link("prod", "document.body") + " || " + page.link("all 1"))
        page.until("document.querySelectorAll('#body tbody tr').length === 1")
        page.click(page.link("prod"))
        page.until("location.hash.includes('queue=prod')")
        page.until("document.querySelector('a.chip')?.textContent === 'queue prod ×'")
        assert page.errors == []


def test_any_number_of_tabs_follow_the_scheduler(browser: Browser) -> None:
    """A browser opens six connections to a server, and a tab that nobody sees gives its one to the others."""
    with served(cluster(8)) as (server, put):
        tabs = [opened(browser, server.port, "jobs") for _ in range(8)]
        said = text(tabs[0], "#totals").replace("\n", " ")
        assert "GPUs 64 used 50 free 5" in said
        assert "unavailable 9, 1 unhealthy" in said
        put(factories.node("another", gpus=8))
        tabs[0].call("Page.bringToFront")
        tabs[0].until(
            "document.getElementById('totals').innerText.replace(/\\s+/g, ' ').includes('nodes 9')"
        )
        assert not [error for tab in tabs for error in tab.errors]


def test_a_new_tab_has_the_token_of_an_open_one(browser: Browser) -> None:
    """A link that is opened in a tab of its own asks for no token; without a tab that has one it does."""
    with served(cluster(2)) as (server, _):
        url = f"http://127.0.0.1:{server.port}/"
        stranger = browser.page(url, width=800, height=600)
        stranger.until("!document.getElementById('login').hidden")
        opened(browser, server.port)
        browser.page(url + "#/job/ns/giant", width=800, height=600).until(LIVE)
        stranger.call("Page.reload")
        stranger.call("Page.bringToFront")
        stranger.until(LIVE)


def test_a_user_of_one_namespace_sees_a_useful_page(browser: Browser) -> None:
    rights = Rights(("ann", "pods", "ns"))
    with served(cluster(8), rights) as (server, _):
        url = f"http://127.0.0.1:{server.port}/#token=ann"
        page = browser.page(url, width=1280, height=900)
        page.until(LIVE)
        page.until("document.querySelectorAll('#body tbody tr').length === 6")
        views = "[...document.querySelectorAll('#views a')].map((each) => each.textContent)"
        assert page.value(views) == ["Jobs", "Queues", "What happened"]
        page.click(page.link("Queues"))
        page.until("document.querySelectorAll('#body ol.waits li').length === 2")
        page.click(page.link("ns/giant"))
        page.until("document.getElementById('body').textContent.includes('Place 1 of 1')")
        page.click(page.link("What happened"))
        page.until("document.querySelectorAll('#body tbody tr').length > 5")
        assert page.errors == []


def test_from_a_cold_start_to_the_sizes_of_an_elastic_job(browser: Browser) -> None:
    """In one click: the jobs are the first view, and the page of a job shows its sizes."""
    with served(cluster(8)) as (server, put):
        pods = [factories.pod(f"elastic-{at}", 1, "elastic") for at in range(3)]
        put(factories.gang("elastic", 1, owner="job/elastic"))
        for pod in pods:
            put(pod)
        record = "/api/job?namespace=ns&name=elastic"
        eventually(lambda: ask(server, record)[0] == 200)
        eventually(lambda: [row[1] for row in data(server, record)["sizes"]][-1:] == [3])
        put(PodGone(pods[2].uid))
        page = opened(browser, server.port)
        page.until("document.querySelectorAll('#body tbody tr').length === 7")
        page.click(page.link("ns/job/elastic"))
        page.until("document.getElementById('title').textContent === 'ns/elastic'")
        page.until("document.querySelector('.size svg')?.ariaLabel.includes('pods: 2 to 3')")
        assert page.errors == []


def test_the_page_passes_axe(browser: Browser) -> None:
    """The accessibility rules of axe-core, in each view, light and dark."""
    source = axe()
    with served(cluster(8)) as (server, _):
        for dark in (False, True):
            page = opened(browser, server.port, dark=dark)
            page.value(source)
            for view in VIEWS:
                page.value(f"location.hash = '#/{view}'")
                page.until(f"document.documentElement.dataset.view === {view!r}")
                found = page.value(
                    "axe.run().then((each) => each.violations.map((one) => "
                    "`${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`))"
                )
                assert found == [], (view, dark)


def test_colours_of_the_map_are_those_of_the_scheme(browser: Browser) -> None:
    with served(cluster(4)) as (server, _):
        url = f"http://127.0.0.1:{server.port}/#token=admin"
        seen = []
        for dark in (False, True):
            page = browser.page(url, width=1000, height=700, dark=dark)
            page.until(LIVE)
            page.value("location.hash = '#/map'")
            page.until("document.getElementById('legend').textContent.includes('free')")
            seen.append(page.value("getComputedStyle(document.body).backgroundColor"))
            pixels = page.value(
                "(() => { const c = document.getElementById('racks'); const d = c.getContext('2d')"
                ".getImageData(0, 0, c.width, c.height).data; const s = new Set();"
                "for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) s.add(`${d[i]},${d[i+1]},${d[i+2]}`);"
                "return s.size; })()"
            )
            assert pixels > 5  # free, unhealthy, cordoned, and several jobs
            assert page.value(
                "import('./console.js').then(({ map }) => map.look(map.nodes.get('node-0003')).cells.every("
                "(each) => each.bad && each.parts[0][0] === map.paint.hidden))"
            )
            assert page.errors == []
        assert seen[0] != seen[1]


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_needs_no_scrolling_sideways(browser: Browser, view: str) -> None:
    with served(cluster(8)) as (server, _):
        page = opened(browser, server.port, view, width=360, height=740)
        page.until(f"document.documentElement.dataset.view === {view!r}")
        assert page.value("document.documentElement.scrollWidth") <= 360
        tables = "[...document.querySelectorAll('.scroll')]"
        cut = f"{tables}.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.firstChild.ariaLabel)"
        assert page.value(cut) == [], "figures are cut off"
        label = "getComputedStyle(document.querySelector('#body td.number'), '::before').content"
        if view == "queues":
            assert "used" in page.value(label)


MORE = [pytest.param(nodes, marks=pytest.mark.nightly) for nodes in (200, 5000)]


@pytest.mark.parametrize("nodes", [8, *MORE])
@pytest.mark.parametrize("view", ["jobs", "map"])
def test_every_control_is_reached_by_keyboard(browser: Browser, nodes: int, view: str) -> None:
    """By Tab, in the order of the page, with a focus that can be seen."""
    with served(cluster(nodes)) as (server, _):
        page = opened(browser, server.port, view)
        page.until(f"document.documentElement.dataset.view === {view!r}")
        page.value(CONTROLS)
        wanted = page.value("controls().length")
        assert wanted >= 6
        seen: list[int] = []
        for _ in range(min(wanted, 150)):
            page.key("Tab")
            at = page.value("controls().indexOf(document.activeElement)")
            style = "getComputedStyle(document.activeElement)"
            assert page.value(f"{style}.outlineStyle != 'none' || {style}.boxShadow != 'none'"), at
            seen.append(at)
        assert seen == [*range(min(wanted, 150))]


def test_the_focus_stays_when_the_tables_are_replaced(browser: Browser) -> None:
    with served(cluster(8)) as (server, put):
        page = opened(browser, server.port)
        page.until("document.querySelectorAll('#body tbody tr').length == 6")
        page.value(f"window.link = {page.link('ns/giant')}")
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


def test_jobs_that_leave_their_gpus_idle_come_first_if_asked(
    browser: Browser, tmp_path: Path
) -> None:
    uses = GpuUses()
    with served(cluster(8), uses=uses) as (server, _):
        page = opened(browser, server.port, "jobs?state=running")
        assert "GPU use" not in text(page, "#body thead")  # no agent reports any
        pods = data(server, "/api/gang?namespace=ns&name=train-1")["pods"]
        for seconds in (7300.0, 0.0):
            for pod in pods:
                idle = GpuUse("ns", pod["name"], "c", 0.01, 3 << 30)
                uses.record(pod["node"], [idle], time.monotonic() - seconds)
        page.until("document.querySelector('#body thead').innerText.includes('GPU use')")
        page.click(page.link("GPU use"))
        page.until("document.querySelector('#body tbody tr').innerText.includes('1 %, idle 2 h')")
        assert page.value("location.hash.includes('sort=-idle')")
        page.screenshot(tmp_path / "jobs.png")
        page.click(page.link("ns/train-1"))
        page.until("document.querySelector('#body dl').innerText.includes('GiB of their memory')")
        page.screenshot(tmp_path / "job.png")
        assert page.errors == []


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultyCluster, int]]:
    nodes = [
        HollowNode(f"n{at}", {RACK: f"r{at // 2}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for at in range(4)
    ]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    port = free_port()
    with FaultyCluster(nodes, flags=[f"--console-listen=127.0.0.1:{port}"]) as made:
        made.start_api()
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        made.start_agents()
        made.wait("the agents", lambda: reported(made))
        yield made, port


def test_a_real_scheduler(box: tuple[FaultyCluster, int], browser: Browser) -> None:
    cluster, port = box
    token = cluster.token_file.read_text()
    page = browser.page(f"http://localhost:{port}/#token={token}", width=1200, height=800)
    page.until(LIVE)
    submit(cluster, "train", 2, 8)
    page.until("document.getElementById('body').textContent.includes('default/train')")
    submit(cluster, "giant", 3, 8)
    page.click(page.link("default/giant"))
    page.until("document.querySelectorAll('#body table[aria-label=Pods] tbody tr').length == 3")
    page.until(
        "document.querySelector('#body table[aria-label=Events]')?.textContent.includes('giant')"
    )
    assert page.errors == []


def test_what_if_on_a_real_scheduler(box: tuple[FaultyCluster, int], browser: Browser) -> None:
    """Two nodes run `train`, and `giant` waits for three: it would start if `train` ended, and not with a rack
    cordoned."""
    cluster, port = box
    token = cluster.token_file.read_text()
    submit(cluster, "train", 2, 8)
    page = browser.page(f"http://localhost:{port}/#token={token}", width=1200, height=800)
    page.until(LIVE)
    submit(cluster, "giant", 3, 8)
    page.until("document.getElementById('body').textContent.includes('default/giant')")
    page.click(page.link("What if"))
    page.until("document.documentElement.dataset.view === 'what-if'")
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
    assert "on the map" in giant
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
