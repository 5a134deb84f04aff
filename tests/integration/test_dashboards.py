"""Prometheus rules and Grafana dashboards of deploy/, read by promtool and run by a real Prometheus."""

import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import xml.etree.ElementTree
from urllib.parse import quote

import pytest
import yaml

from rig.client import CHAT, ask
from rig.exporter import Exporter, labels_of
from rig.kvtierd import Kvtierd, take
from rig.router import Process
from rig.wait import Port, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules.yaml"
CASES = ROOT / "deploy/prometheus/rules_test.yaml"
EXAMPLE = ROOT / "deploy/prometheus/prometheus.yaml"
GUIDE = ROOT / "deploy/README.md"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
DATA = ROOT / "tests/integration/data"
JSON = [("Content-Type", "application/json")]
# What a sample gets from the scrape.
TARGET = {"job", "instance"}


def program(name):
    """tests/run.sh installs it, so that its absence is a fault."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed: deploy/packages.sh test")
    return path


def promtool(*arguments):
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=RULES.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- what the programs export -------------------------------------------------------------------


def pages():
    """What a vLLM with stock LMCache shows, and a node's DCGM exporter."""
    vllm = (DATA / "vllm/metrics.resp").read_text().partition("\n\n")[2]
    return vllm + (DATA / "lmcache/metrics.prom").read_text(), (DATA / "dcgm/metrics.prom").read_text()


def connector():
    """{name of a sample} of kvtier's connector in vLLM."""
    text = (ROOT / "cache/python/kvtier/vllm_metrics.py").read_text()
    names = {f"{name}_total" for name in re.findall(r'\("((?:kvtier|lmcache):\w+)", "', text)}
    return names | {f"lmcache:request_cache_hit_rate_{part}" for part in ("bucket", "sum", "count")}


@functools.cache
def exported():
    """{name of a sample: its labels} of kvway, kvtierd, kvtier and its connector in vLLM; of vLLM, LMCache and DCGM."""
    row = re.compile(r"^\| `([\w:]+)` \| (\w+) \| (?:`([\w,]+)`)? \|", re.M)
    known = {"up": set()}
    for page in ("src/router/admin/METRICS.md", "cache/METRICS.md", "cache/daemon/METRICS.md"):
        rows = row.findall((ROOT / page).read_text())
        assert rows, f"{page} has no metrics"
        for name, kind, labels in rows:
            own = set(labels.split(",")) - {""}
            if kind == "histogram":
                known |= {f"{name}_bucket": own | {"le"}, f"{name}_sum": own, f"{name}_count": own}
            else:
                known[name] = own
    engine = {"model_name", "engine"}
    more = [(name, engine) for name in connector()]
    tiers = (ROOT / "cache/python/kvtier/tiers.py").read_text()
    more += [(f"kvtier:tier_{name}_total", engine | {"tier"}) for name in re.findall(r'^    "(\w+)": "', tiers, re.M)]
    for name, labels in (*more, *(item for page in pages() for item in labels_of(page).items())):
        known[name] = known.get(name, set()) | labels
    return known


def recorded():
    return {name: set() for name in re.findall(r"- record: (\S+)", RULES.read_text())}


GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
NAME = re.compile(r"(?<![\w:.$])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")


def faults(expr, known):
    """Metrics and labels of an expression that nothing exports."""
    bare = re.sub(r"\[[^\]]*\]", "", re.sub(r"\"[^\"]*\"", "", expr))
    grouped = {label.strip() for labels in GROUPING.findall(bare) for label in labels.split(",")}
    bare = GROUPING.sub("", bare)
    for name, matchers in SELECTOR.findall(bare):
        for label in re.findall(r"(\w+)\s*[=!]", matchers):
            if label not in known.get(name, {label}) | TARGET:
                yield f"{name} has no label {label}"
    names = set(NAME.findall(re.sub(r"\{[^}]*\}", "", bare))) - {"and", "or", "unless", "bool"}
    if not names:
        yield "no metric"
    for name in names - set(known):
        yield f"{name} is exported by nothing"
    for label in grouped - TARGET - set().union(*(known.get(name, set()) for name in names)):
        yield f"no metric has the label {label}"


# --- dashboards ---------------------------------------------------------------------------------


def load(path):
    return json.loads(path.read_text())


def queries(path):
    """(panel, target) of each query of a dashboard."""
    return [(panel, target) for panel in load(path)["panels"] for target in panel.get("targets", ())]


def choices(path):
    """(variable, expression with a result for each of its values)"""
    for variable in load(path)["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
        yield variable["name"], f"count by ({label}) ({metric})"


def concrete(expr):
    """As Grafana sends it: all instances, workers and models, a range of some scrapes."""
    expr = expr.replace("$__rate_interval", "20s")
    return re.sub(r'"\$\w+"', '".*"', expr)


def test_the_checks_of_this_file_find_faults():
    known = exported()
    assert not list(faults('sum by (worker) (rate(kvway_requests_total{route!="a", job="x"}[5m]))', known))
    assert list(faults("rate(kvway_request_total[5m])", known))
    assert list(faults('kvway_requests_total{model="m"}', known))
    assert list(faults("sum by (model) (kvway_requests_total)", known))
    assert list(faults("kvway_request_seconds", known)) and not list(faults("kvway_request_seconds_bucket", known))
    assert "kvtier:failed_loads_total" in known and "kvtier:tier_hits_total" in known


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_well_formed(path):
    board = load(path)
    assert board["uid"] and board["title"] and board["schemaVersion"] >= 30
    variables = {v["name"]: v for v in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    titles = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        if panel["type"] == "row":
            titles = set()
            continue
        assert panel["title"] not in titles, panel["title"]
        titles.add(panel["title"])
        assert panel["type"] in ("timeseries", "stat") and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(set(references)) == len(references), panel["title"]
    for panel, target in queries(path):
        used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
        assert used <= set(variables), (panel["title"], used)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_names_what_is_exported(path):
    known = exported()
    wrong = [(p["title"], fault) for p, t in queries(path) for fault in faults(t["expr"], known)]
    wrong += [(name, fault) for name, expr in choices(path) for fault in faults(expr, known)]
    assert not wrong


# Those of the table in HyperPod's page on KV-aware routing.
CONFIRM_HITS = {
    "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "lmcache:num_vllm_hit_tokens_total",
    "lmcache:num_lookup_hits_total", "lmcache:num_lookup_tokens_total", "lmcache:request_cache_hit_rate_bucket",
}  # fmt: skip


def test_the_metrics_that_confirm_cache_hits_are_shown():
    """For workers with stock LMCache and for those with kvtier."""
    exprs = " ".join(target["expr"] for _, target in queries(ROOT / "deploy/grafana/cache.json"))
    assert CONFIRM_HITS <= set(NAME.findall(re.sub(r"\{[^}]*\}", "", exprs)))
    assert CONFIRM_HITS <= set(labels_of(pages()[0]))
    assert {name for name in CONFIRM_HITS if name.startswith("lmcache:")} <= connector()


def test_panels_without_their_source_say_what_they_need(monkeypatch):
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "deploy/grafana/pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    monkeypatch.setattr(pictures, "ask", lambda *_, **__: [])
    for path in DASHBOARDS:
        board = load(path)
        picture, empty = pictures.draw(board, "", 0, 60)
        assert len(empty) == sum("targets" in panel for panel in board["panels"])
        for panel, target in queries(path):
            words = panel["fieldConfig"]["defaults"].get("noValue", "")
            for metric, source in {"DCGM_": "DCGM", 'worker_id!=""': "LMCache", "kvtier:": "kvtier", "kvtierd_": "kvtierd"}.items():
                assert metric not in target["expr"] or words.startswith("No data: needs ") and source in words, panel["title"]
            assert words.split(" ")[-1] in picture


@pytest.mark.parametrize("count, share", [("7x20", 0), ("0+60x20", 0.5)])
def test_a_share_of_no_requests_is_zero(tmp_path, count, share):
    """Not NaN, as 0 / 0 is. Where there are requests, half of them failed and as many were refused."""
    route = 'instance="a",route="chat"'
    series = [{"series": f'kvway_requests_total{{{route},status="{status}"}}', "values": count} for status in (200, 500)]
    series += [
        {"series": f'kvway_refused_{why}_total{{instance="a"}}', "values": values}
        for why, values in {"service_level": count, "deadline": "0x20", "queue_full": "0x20"}.items()
    ]
    asked = [
        {"expr": concrete(t["expr"]).replace("20s", "5m"), "eval_time": "15m", "exp_samples": [{"labels": "{}", "value": share}]}
        for p, t in queries(ROOT / "deploy/grafana/router.json")
        if p["title"] in ("Failed", "Share refused")
    ]
    assert len(asked) == 2
    case = tmp_path / "case.yaml"
    case.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]}))
    promtool("test", "rules", case)


# --- rules --------------------------------------------------------------------------------------


def test_promtool_likes_rules_and_example():
    promtool("check", "rules", RULES.name)
    promtool("check", "config", EXAMPLE.name)


def test_each_alert_fires_for_the_bad_and_not_for_the_good():
    promtool("test", "rules", CASES.name)


def test_each_alert_has_a_case_and_a_section():
    rules = RULES.read_text()
    alerts = re.findall(r"- alert: (\w+)", rules)
    assert alerts and len(set(alerts)) == len(alerts)
    cases = re.findall(r"expr: 'ALERTS\{alertname=\"(\w+)\"", CASES.read_text())
    assert sorted(cases) == sorted(alerts)
    assert re.findall(r"runbook_url: (\S+)", rules) == [f"deploy/README.md#{name.lower()}" for name in alerts]
    guide = GUIDE.read_text()
    assert re.findall(r"^#### (Kv\w+)$", guide, re.M) == alerts
    titles = {panel["title"] for path in DASHBOARDS for panel in load(path)["panels"]}
    named = {" ".join(title.split()) for title in re.findall(r"panel\s+\*([^*]+)\*", guide)}
    assert named and named <= titles


# Whose sources have the values of labels as text, by the beginning of the metric's name.
SOURCES = {"kvtierd_": "cache/daemon", "kvtier_": "cache", "kvway_": "src/router", "vllm:": "src/router"}


@functools.cache
def source(folder):
    return "".join(path.read_text() for kind in ("c", "h", "def") for path in sorted((ROOT / folder).rglob(f"*.{kind}")))


def impossible(expr):
    """Values of labels that an expression asks for and that no program writes."""
    for name, matchers in SELECTOR.findall(expr):
        folder = next((its for start, its in SOURCES.items() if name.startswith(start)), None)
        for label, values in re.findall(r'(\w+)\s*[=!]~?\s*"([^"]*)"', matchers if folder else ""):
            for value in values.split("|") if label not in TARGET else ():
                if re.fullmatch(r"\w+", value) and f'"{value}"' not in source(folder):
                    yield f'{name} has no {label}="{value}"'


def test_rules_and_dashboards_ask_for_values_that_are_written():
    assert list(impossible('sum(rate(kvtierd_requests_total{code="500"}[5m]))'))
    groups = yaml.safe_load(RULES.read_text())["groups"]
    exprs = [rule["expr"] for group in groups for rule in group["rules"]]
    exprs += [target["expr"] for path in DASHBOARDS for _, target in queries(path)]
    assert not [fault for expr in exprs for fault in impossible(expr)]


# --- live ---------------------------------------------------------------------------------------

# Metrics that a healthy router and kvtierd in this test do not show, and why: an expression that names
# one may have no result.
ABSENT = {
    "kvtier:": "no vLLM with kvtier runs here",
    "kvway_worker_cache_coverage": "the strategy is prefixaware",
    "kvway_kvaware_token_wait_seconds": "the strategy is prefixaware",
}
# Histograms in which nothing was counted: no request waits, no tier is shared, no worker has a role. Their quantiles are no number.
EMPTY = ("kvway_wait_seconds", "kvtier_probe_seconds", "kvway_pd_prefill_seconds", "kvway_pd_handover_seconds", "kvway_pd_transfer_seconds")
# Alerts that a slow or full machine may raise.
MACHINE = {"KvwayDiskFull", "KvwayFirstTokenSlow", "KvtierStoresDropped", "KvtierGetTimeouts", "KvtierNoRoom"}


class Prometheus(Process):
    """On loopback, with the example's jobs, every second."""

    def __init__(self, directory, targets):
        self.listen = Port()
        self.port = self.listen.number
        text = EXAMPLE.read_text()
        changes = {**{f'"{a}"': b for a, b in targets.items()}, "[rules.yaml]": f"[{RULES}]"}
        for old, new in {**changes, "interval: 15s": "interval: 1s"}.items():
            assert old in text, old
            text = text.replace(old, new)
        config = directory / "prometheus.yaml"
        config.write_text(text)
        super().__init__(
            [
                program("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            directory / "prometheus.log",
        )

    def ready(self):
        assert self.alive(), self.log()
        try:
            return ask(self.port, "GET", "/-/ready").status == 200
        except OSError:
            return False

    def api(self, path):
        answer = ask(self.port, "GET", f"/api/v1/{path}")
        told = answer.json()
        assert told["status"] == "success", (path, told)
        return told["data"]

    def query(self, expr):
        """[(labels, value)]"""
        result = self.api(f"query?query={quote(expr)}")["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in result]

    def rules(self):
        """{name: rule as the API shows it}"""
        return {rule["name"]: rule for group in self.api("rules")["groups"] for rule in group["rules"]}

    def stop(self):
        try:
            if self.alive():
                self.signal(signal.SIGTERM)
                self.wait(10)
        finally:
            self.kill()
            self.listen.close()


@pytest.fixture
def kvtierd(tmp_path):
    store = {"cache.nvme.path": str(tmp_path / "store"), "cache.nvme.capacity": "64MiB"}
    daemon = Kvtierd(tmp_path, store)
    try:
        yield daemon.wait_up().wait_writable()
        daemon.stop()
    finally:
        daemon.remove()


def chat(router, number, **more):
    turns = [{"role": "user", "content": f"conversation {number % 3}: " + "word " * 400}]
    body = {"model": "tiny", "messages": turns, "max_tokens": 8, **more}
    return router.ask("POST", CHAT, JSON, json.dumps(body).encode()).status


def traffic(router, daemon, done):
    """Requests of all kinds until `done` is set."""
    rng = random.Random(7)
    segment = daemon.segment()
    number = 0
    with daemon.client() as client:
        while not done.wait(0.05):
            number += 1
            more = {"stream": True, "stream_options": {"include_usage": True}} if number % 2 else {}
            chat(router, number, **more)
            name = f"/v1/kv/bucket/{rng.randrange(40)}"
            if number % 2:
                take(client, segment, name, 500)
            else:
                client.ask("PUT", name, body=random.Random(name).randbytes(1 << 20))  # all: more than memory
    segment.close()


def has_data(prometheus, panel, target):
    """Whether the query has a result that is a number; its legend names labels that are there."""
    result = prometheus.query(concrete(target["expr"]))
    labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for have, _ in result:
        assert labels <= set(have), (panel["title"], target["expr"], have)
    return any(value == value for _, value in result)


def may_lack_data(panel, target):
    return any(name in target["expr"] for name in (*ABSENT, *EMPTY))


def draws_every_panel(prometheus, directory):
    """deploy/grafana/pictures.py has each panel in its picture, with data where the queries have some."""
    script = ROOT / "deploy/grafana/pictures.py"
    argv = [script, f"http://127.0.0.1:{prometheus.port}", directory / "pictures", "1"]
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for path in DASHBOARDS:
        panels = [panel for panel, _ in queries(path)]
        picture = xml.etree.ElementTree.parse(directory / "pictures" / f"{path.stem}.svg")
        words = {node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")}
        assert {panel["title"] for panel in panels} <= words
        (line,) = (line for line in done.stdout.splitlines() if f"/{path.stem}.svg" in line)
        for panel in panels:
            if f" {panel['title']}," in f"{line.partition('data:')[2]},":
                assert all(may_lack_data(panel, target) for target in panel["targets"]), panel["title"]


def shows_stock_lmcache(prometheus, instance):
    """What two ranks count, both of all tokens, stands once in the panels; nothing of it is kvtierd's."""
    exprs = {panel["title"]: concrete(target["expr"]) for panel, target in queries(ROOT / "deploy/grafana/cache.json")}
    rates = prometheus.query(exprs["Lookup hit rate"])
    assert [value for labels, value in rates if labels == {"instance": instance}] == [pytest.approx(2304 / 4096)]
    one_rank = f'sum by (instance) (rate(lmcache:num_vllm_hit_tokens_total{{instance="{instance}", worker_id="0"}}[20s]))'
    assert prometheus.query(f"({exprs['vLLM hit tokens']}) / {one_rank}") == [({"instance": instance}, pytest.approx(1))]
    assert not [labels for labels, _ in prometheus.query(exprs["Gets"].replace("sum ", "sum by (job) ")) if labels["job"] == "vllm"]


def test_panels_and_rules_show_a_router_and_a_cache_at_work(kvway, kvsim, kvtierd, tmp_path):
    workers = kvsim(2)
    router = kvway(workers, {"admission.enabled": True})
    stock, dcgm = (Exporter(page) for page in pages())
    prometheus = Prometheus(
        tmp_path,
        {
            "router.example.com:9090": f'"127.0.0.1:{router.admin_port}"',
            "node-1.example.com:9200": f'"127.0.0.1:{kvtierd.port}"',
            "node-1.example.com:8000": ", ".join(f'"127.0.0.1:{w.port}"' for w in (*workers, stock)),
            "node-1.example.com:9400": f'"127.0.0.1:{dcgm.port}"',
        },
    )
    done = threading.Event()
    clients = threading.Thread(target=traffic, args=(router, kvtierd, done))
    try:
        until(prometheus.ready, 20, "Prometheus ready")
        clients.start()
        until(lambda: len(prometheus.query("up == 1")) == 6, 20, "all targets scraped")

        for rule in until(lambda: evaluated(prometheus), 20, "all rules evaluated").values():
            assert rule["health"] == "ok" and not rule.get("lastError"), rule
            assert not list(faults(rule["query"], exported() | recorded())), rule["name"]
            assert rule.get("state", "inactive") == "inactive" or rule["name"] in MACHINE, rule
        empty = {name for name in recorded() if not prometheus.query(name)}
        assert not empty

        assert chat(router, 1, model="unknown") == 404
        workers[0].fail("status%3D500", 3)
        workers[1].fail("status%3D500", 3)
        missing = [one for path in DASHBOARDS for one in queries(path)]

        def complete():
            missing[:] = [one for one in missing if not has_data(prometheus, *one)]
            return all(may_lack_data(*one) for one in missing)

        with contextlib.suppress(AssertionError):
            until(complete, 60, "every panel has data")
        assert not [(p["title"], t["expr"]) for p, t in missing if not may_lack_data(p, t)]
        offered = {name: prometheus.query(concrete(expr)) for path in DASHBOARDS for name, expr in choices(path)}
        assert {name: len(values) for name, values in offered.items() if name not in ("instance", "tier")} == {
            "worker": 2, "model": 1, "engine": 3, "gpu_node": 1}  # fmt: skip
        assert offered["instance"] and offered["tier"]
        shows_stock_lmcache(prometheus, f"127.0.0.1:{stock.port}")

        draws_every_panel(prometheus, tmp_path)
        router.config_path.write_text("nonsense: 1\n")
        os.kill(router.pid, signal.SIGHUP)
        until(lambda: prometheus.rules()["KvwayReloadFailed"]["state"] == "pending", 10, "the alert pending")
    finally:
        done.set()
        if clients.is_alive():
            clients.join()
        prometheus.stop()
        stock.close()
        dcgm.close()


def evaluated(prometheus):
    """The rules once each has been evaluated on data of some scrapes."""
    rules = prometheus.rules()
    if any(rule["health"] == "unknown" for rule in rules.values()):
        return None
    return rules if all(prometheus.query(name) for name in recorded()) else None
