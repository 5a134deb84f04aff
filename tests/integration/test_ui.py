"""The page /ui in a real, headless Chromium: its figures, hostile names, actions by key, its look."""

import hashlib
import json
import os
import pathlib
import re
import signal
import threading
import time

import pytest

from rig import browser
from rig.client import CHAT, ask
from rig.router import parse_metrics
from rig.sim import Sim
from rig.status import WORKERS, of_worker, totals
from rig.wait import until

CHATS = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
SHOTS = os.environ.get("KVW_SHOTS")  # a folder for pictures, to look at them

pytestmark = pytest.mark.skipif(
    browser.program() is None and "ubuntu" in pathlib.Path("/etc/os-release").read_text(),
    reason="Ubuntu has Chromium as a snap alone, which does not run in containers",
)


@pytest.fixture
def tab(tmp_path):
    if browser.program() is None:
        pytest.fail("Chromium is not installed: deploy/packages.sh test")
    made = browser.Browser(tmp_path)
    yield made
    made.stop()


def opened(tab, router):
    tab.open(f"http://127.0.0.1:{router.admin_port}/ui")
    until(lambda: tab.run("latest !== null"), 30, "the page shows something")
    return tab


def load(router, stop, **more):
    """Clients that ask until `stop`, each conversation with a system prompt of all."""
    system = "You answer questions about ships. " * 60

    def client(number):
        turn = 0
        while not stop.is_set():
            turn += 1
            messages = [{"role": "system", "content": system}, {"role": "user", "content": f"{number} {turn} " * 40}]
            body = {**CHATS, "messages": messages, "stream": True, "stream_options": {"include_usage": True}, **more}
            router.ask("POST", CHAT, [("x-request-id", f"load-{number}-{turn}")], body, timeout=120)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    return threads


FIGURES = """Object.fromEntries([...document.querySelectorAll("[data-figure]")].map(
    (e) => [e.dataset.figure, [e.dataset.value, e.textContent]]))"""


def shown_since(tab, moment):
    """{place: (value, text)} of a document that was made later than this."""
    until(lambda: tab.run("latest.kvway.time") > moment, 30, "a newer document")
    return tab.run(FIGURES)


def expected(samples, urls):
    """{place: value} by /metrics."""
    sums = totals(samples)
    places = {f"totals.{name}": value for name, value in sums.items()}
    places["totals.computed"] = sums["prompt_tokens"] - sums["cached_tokens"]
    for i, url in enumerate(urls):
        for name, value in of_worker(samples, url).items():
            places[f"workers.{i}.{name}"] = value
    places["in_flight"] = samples[("kvway_exchanges", frozenset())]
    places["waiting.0.requests"] = samples[("kvway_waiting_requests", frozenset())]
    return places


def metrics(router):
    return parse_metrics(ask(router.admin_port, "GET", "/metrics").body.decode())


def test_every_figure_equals_metrics_under_load_and_after_it(tab, kvsim, kvway):
    workers = kvsim(2)
    router = kvway(workers, {"service_level.ttft": "30s"})
    opened(tab, router)
    urls = tab.run("latest.workers.map((w) => w.url)")
    stop = threading.Event()
    threads = load(router, stop)
    try:
        for _ in range(3):
            before = expected(metrics(router), urls)
            shown = shown_since(tab, time.time())
            after = expected(metrics(router), urls)
            compared = 0
            for place, (value, _) in shown.items():
                if place.startswith("totals.") and place != "totals.computed":
                    assert before[place] <= float(value) <= after[place], (place, before[place], value, after[place])
                    compared += 1
            assert compared >= 5, shown
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    router.wait_idle()

    def equal():
        wanted = expected(metrics(router), urls)
        shown = shown_since(tab, time.time())
        seen = {place: float(value or 0) for place, (value, _) in shown.items() if place in wanted}
        assert {"totals.prompt_tokens", "totals.cached_tokens", "totals.computed", "totals.refused_queue_full", "in_flight",
                "waiting.0.requests", "workers.1.prefilling"} <= set(seen)  # fmt: skip
        return all(seen[place] == wanted[place] for place in seen) and len(seen) >= 8 + 2 * (len(WORKERS) - 1)

    until(equal, 30, "equal figures")
    # What the page computes itself is of the same document.
    document, shown = tab.run("latest"), tab.run(FIGURES)
    assert float(shown["prefixes.items.0.hits"][0]) == document["prefixes"]["items"][0]["hits"] > 0
    five = document["five_minutes"]
    assert float(shown["five_minutes.cached_tokens"][0]) == five["cached_tokens"] > 0
    assert float(shown["minute.cached_tokens"][0]) == pytest.approx(
        100 * document["minute"]["cached_tokens"] / document["minute"]["prompt_tokens"]
    )
    assert tab.run("document.querySelectorAll('#charts figure').length") == 6
    assert tab.complaints == []


def test_a_workers_death_is_seen(tab, tmp_path, kvway):
    sims = [Sim(tmp_path, 1, name=f"sim{i}") for i in range(2)]
    try:
        router = kvway([sim.workers[0] for sim in sims])
        opened(tab, router)
        sims[1].kill()
        began = time.monotonic()
        row = f"document.querySelector('tr[data-worker=\"{sims[1].workers[0].url}\"] td').textContent"
        until(lambda: tab.run(row).startswith("down"), 60, "the row says down")
        print(f"a worker's death was on the page after {time.monotonic() - began:.2f} s")
        until(lambda: tab.run("document.querySelector('li[data-code=worker_down]') !== null"), 30, "the problem")
        words = tab.run("document.querySelector('li[data-code=worker_down]').innerText")
        assert "gets no requests" in words and "Start it again" in words
        assert tab.complaints == []
    finally:
        for sim in sims:
            sim.kill()


def test_a_router_that_stands_still_is_not_called_live(tab, kvsim, kvway):
    router = kvway(kvsim(1))
    opened(tab, router)
    until(lambda: tab.run("document.getElementById('live').textContent") == "live", 30, "live figures")
    os.kill(router.pid, signal.SIGSTOP)
    try:
        until(lambda: tab.run("document.getElementById('live').className") == "off", 60, "it says so")
    finally:
        os.kill(router.pid, signal.SIGCONT)
    until(lambda: tab.run("document.getElementById('live').textContent") == "live", 60, "live figures again")


EVIL = [
    "<img src=x onerror=window.hit=1>",
    "</script><script>window.hit=2</script>",
    '" onmouseover="window.hit=3',
    "\u202emodnar\u202c",
    "javascript:window.hit=4",
    "{{constructor.constructor('window.hit=5')()}}",
    "\u0007\u001b]0;evil\u0007",
]


def test_hostile_names_and_answers_run_no_script(tab, workers, kvway):
    one, two = workers(2)
    one.models = tuple(EVIL)
    router = kvway([one, two])
    opened(tab, router)

    def evil(ex):
        ex.read_body()
        ex.respond(500, [("x-evil", EVIL[0])], reason="<img src=x onerror=window.hit=6>", body=EVIL[1].encode())

    one.script = two.script = evil
    for name in EVIL + ["nowhere" + name for name in EVIL] + ["y" * 10240]:
        headers = [("x-request-id", re.sub(r"[^ -~]", "?", name)[:200]), ("User-Agent", EVIL[0])]
        router.ask("POST", CHAT, headers, {**CHATS, "model": name}, timeout=30)
    until(lambda: tab.run("document.querySelectorAll('li[data-code=unknown_model]').length") >= 3, 30, "problems")
    two.models = ("x" * 10240,)  # longer than a name may be: its list is refused
    until(lambda: tab.run("document.querySelector('li[data-code=models_unreadable]') !== null"), 30, "the refused list")
    tab.run("document.getElementById('story-id').value = '<img src=x onerror=window.hit=7>'")
    tab.run("showStory('last=1&status=5xx')")
    until(lambda: tab.run("document.getElementById('story-way').children.length") > 2, 30, "a story")
    tab.run("[...document.querySelectorAll('*')].forEach((e) => e.dispatchEvent(new Event('mouseover')))")
    assert tab.run("window.hit === undefined")
    assert tab.run("document.querySelectorAll('img, iframe, object, embed, a[href^=javascript]').length") == 0
    assert tab.run("document.scripts.length") == 1
    text = tab.run("document.body.innerText")
    assert "<img src=x onerror=window.hit=1>" in text  # it is there, as text
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    assert tab.complaints == []
    # The policy holds even where a script would get in.
    tab.run("const s = document.createElement('script'); s.textContent = 'window.hit = 8'; document.body.append(s)")
    tab.run("document.body.insertAdjacentHTML('beforeend', '<p id=e onclick=\"window.hit=9\">x</p>'); document.getElementById('e').click()")
    tab.run("fetch('http://127.0.0.1:1/').catch(() => 0)")
    assert tab.run("window.hit === undefined")
    assert any("Content Security Policy" in line for line in tab.complaints), tab.complaints


def alive(router):
    try:
        return ask(router.admin_port, "GET", "/health").status == 200
    except OSError:
        return False


def test_it_asks_nothing_elsewhere_and_its_policy_is_strict(kvsim, kvway):
    router = kvway(kvsim(1))
    answer = ask(router.admin_port, "GET", "/ui")
    assert answer.status == 200 and dict(answer.headers)["Content-Type"] == "text/html; charset=utf-8"
    policy = dict(answer.headers)["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    page = answer.body.decode()
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\son\w+=|\sstyle=|javascript:|innerHTML|eval\(|localStorage|sessionStorage|document\.cookie", page)


def entry(name, key, **more):
    return {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **more}


def test_only_the_key_shows_and_only_it_acts(tab, kvsim, kvway, tmp_path):
    key = "sk-page-0123456789"
    keys = tmp_path / "admin.keys"
    keys.write_text(json.dumps({"keys": [entry("page", key)]}))
    workers = kvsim(2)
    router = kvway(workers, {"admin.keys_file": str(keys)}, up=False)
    until(lambda: alive(router), 20, "kvway up")
    tab.open(f"http://127.0.0.1:{router.admin_port}/ui")
    until(lambda: not tab.run("document.getElementById('key-form').hidden"), 30, "it asks for a key")
    assert tab.run("latest === null") and "kvsim" not in tab.run("document.body.innerText")
    enter = "document.getElementById('key').value = {}; document.getElementById('key-form').requestSubmit()"
    tab.run(enter.format(json.dumps("sk-wrong-000")))
    until(lambda: "was not taken" in tab.run("document.getElementById('key-note').textContent"), 30, "a refusal")
    tab.run(enter.format(json.dumps(key)))
    until(lambda: tab.run("latest !== null && latest.workers.length") == 2, 30, "the workers")
    button = f"[...document.querySelectorAll('#worker-table button')].find((b) => b.getAttribute('aria-label') === 'Drain 127.0.0.1:{workers[0].port}')"
    until(lambda: tab.run(f"{button} !== undefined"), 30, "buttons")
    tab.run(f"{button}.focus(), {button}.click()")  # as a person does: the focus stays there
    assert tab.run(f"{button}.textContent") == "Sure?"  # nothing has happened yet
    headers = [("Authorization", f"Bearer {key}")]
    state = lambda: ask(router.admin_port, "GET", f"/workers/127.0.0.1:{workers[0].port}", headers).json()["state"]  # noqa: E731
    assert state() == "up"
    tab.run(f"{button}.click()")
    until(lambda: state() == "draining", 30, "the worker drains")
    until(lambda: tab.run("document.querySelector('[aria-label^=Undrain]') !== null"), 30, "the way back")
    assert tab.run("document.activeElement.getAttribute('aria-label')") == f"Undrain 127.0.0.1:{workers[0].port}"
    tab.run("document.getElementById('reload').click()")
    until(lambda: "Reload: done" in tab.run("document.getElementById('done').textContent"), 30, "a reload")
    assert tab.run("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    assert key not in tab.run("document.documentElement.outerHTML") and key not in tab.run("location.href")
    tab.run("document.getElementById('key-drop').click()")
    assert tab.run("document.body.classList.contains('no-actions')") and tab.run("document.getElementById('reload').hidden")


def test_without_keys_it_only_shows(tab, kvsim, kvway):
    router = kvway(kvsim(1))
    opened(tab, router)
    tab.run("document.getElementById('key').value = 'sk-any-0123456789'; document.getElementById('key-form').requestSubmit()")
    until(lambda: "has no keys" in tab.run("document.getElementById('key-note').textContent"), 30, "a note")
    assert tab.run("[...document.querySelectorAll('.act')].every((e) => getComputedStyle(e).display === 'none')")


# --- how it looks -------------------------------------------------------------------------------

CONTRAST = """(() => {
	const parse = (c) => c.match(/[\\d.]+/g).map(Number);
	const over = (top, under) => { const a = top.length > 3 ? top[3] : 1; return [0, 1, 2].map((i) => top[i] * a + under[i] * (1 - a)); };
	const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
		return .2126 * r + .7152 * g + .0722 * b; };
	const ground = (e) => e === null ? [255, 255, 255] : over(parse(getComputedStyle(e).backgroundColor), ground(e.parentElement));
	const bad = []; let seen = 0;
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || e.getClientRects().length === 0) continue;
		const under = ground(e), [a, b] = [light(over(parse(getComputedStyle(e).color), under)), light(under)];
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		seen++;
		if (ratio < 4.5) bad.push([walk.currentNode.data.slice(0, 40), e.className, ratio.toFixed(2)]);
	}
	return { seen, bad };
})()"""

ROLES = {"button", "textbox", "link", "img", "image", "region", "table", "heading", "columnheader", "rowheader"}


def unnamed(tab):
    """Roles of things that a screen reader could not name."""
    nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
    named = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored") and "role" in n]
    assert sum(role in ROLES for role, _ in named) > 20, named
    return [(role, name) for role, name in named if role in ROLES - {"table"} and not name.strip()]


@pytest.fixture
def busy(tab, tmp_path, kvway):
    """A page with something in each panel: load, a dead worker, a wrong name."""
    sims = [Sim(tmp_path, 3, profile="llama-8b-h100", name="sim"), Sim(tmp_path, 1, name="dead")]
    router = kvway([w for sim in sims for w in sim.workers], {"service_level.ttft": "30s"})
    stop = threading.Event()
    threads = load(router, stop, max_tokens=60)
    sims[1].kill()
    router.ask("POST", CHAT, body={**CHATS, "model": "tiny-typo"})
    opened(tab, router)
    full = "document.querySelectorAll('#problem-list .error, #problem-list .warning').length >= 2 && latest.prefixes.items.length > 0"
    until(lambda: tab.run(full), 60, "a full page")
    yield tab
    stop.set()
    for thread in threads:
        thread.join()
    for sim in sims:
        sim.kill()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_can_be_read_and_has_names(busy, dark):
    tab = busy
    if SHOTS:
        time.sleep(float(os.environ.get("KVW_SHOTS_AFTER", "0")))
    for width in (320, 768, 1280):
        tab.shape(width, dark=dark)
        tab.run("paused = false, poll()")
        assert tab.run("document.documentElement.scrollWidth <= innerWidth"), f"it scrolls sideways at {width}"
        found = tab.run(CONTRAST)
        assert found["seen"] > 80 and found["bad"] == [], found
        assert unnamed(tab) == []
        picture = pathlib.Path(SHOTS or "/nonexistent") / f"ui-{width}-{'dark' if dark else 'light'}.png"
        if SHOTS:
            tab.picture(picture)
    assert tab.complaints == []


def test_the_keyboard_reaches_everything(busy):
    tab = busy
    tab.shape(1280)
    tab.run("document.body.focus()")
    reached = set()
    for _ in range(40):
        tab.press("Tab")
        reached.add(tab.run("document.activeElement.id || document.activeElement.getAttribute('aria-labelledby') || document.activeElement.className"))
    assert {"skip", "pause", "key-open", "workers", "prefixes", "story-id", "story-last"} <= reached, reached
    tab.run("document.getElementById('key-open').focus()")
    tab.press("Enter", text="\r")
    assert tab.run("document.activeElement.id") == "key"
    tab.run("document.getElementById('pause').focus()")
    tab.press("Enter", text="\r")
    until(lambda: tab.run("paused") is True, 10, "paused")


def test_a_story_by_its_id(tab, kvsim, kvway):
    router = kvway(kvsim(1))
    opened(tab, router)
    assert router.ask("POST", CHAT, [("x-request-id", "tale-1")], CHATS, timeout=30).status == 200
    tab.run("document.getElementById('story-id').value = 'tale-1'; document.getElementById('story-form').requestSubmit()")
    until(lambda: "tale-1" in tab.run("document.getElementById('story-way').innerText"), 30, "the story")
    words = tab.run("document.getElementById('story-way').innerText")
    assert "200 complete" in words and "attempt: " in words
    assert tab.complaints == []
