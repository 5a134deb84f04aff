"""The runner of tests/requests: each kind of expectation holds where it should and fails where it should, with its line; a file with
a mistake is refused with the line and what is known there."""

import pathlib
import re
import socket

import pytest

from rig.play import expect, kernel, language, stage
from rig.play.language import VERBS, parse
from rig.play.player import Player, report
from rig.play.values import CaseError, Data, Names, readable
from rig.router import Router
from rig.wait import PATIENCE, until

LONG_S = stage.WAIT.s
SHORT_S = 0.6 * PATIENCE
CHAT = "/v1/chat/completions"
ASKED = f"client asks chat\n    header X-Request-Id: mine\nw0 receives POST {CHAT}\n"
ANSWERED = ("w0 answers 200 Fine\n    header etag: x\n    header a: 1\n    header a: 2\n"
            '    json {"n": 7, "text": "long", "list": [{"id": "a", "v": 1}, {"id": "b", "v": 2}]}\nclient receives 200\n')  # fmt: skip
STREAM = "client asks stream\nw0 receives\nw0 begins\nw0 sends event one\nclient receives head 200\n"
EARLY = f"client begins POST /x\n    header Content-Length: 3\nclient sends \"ab\"\nw0 receives head POST /x\n"
RAW = "client asks GET /x\nw0 receives\n"

# What is tried: a file in which `{right|wrong}` stands once; with the first it holds, with the second it fails at that
# line.
TRIALS = [
    RAW + "w0 answers 200\nclient receives {200|404}",
    RAW + "w0 answers 404\nclient receives {404|200}",
    RAW + "w0 answers 200\nclient receives head {200|404}\nclient receives rest",
    RAW + "w0 sends \"HTTP/1.1 103 Early\\r\\nlink: a\\r\\n\\r\\n\"\nw0 answers\nclient receives 200\n    interim is {103|100}",
    RAW + "w0 sends \"HTTP/1.1 103 Early\\r\\nlink: a\\r\\n\\r\\n\"\nw0 answers\nclient receives 200\n    interim header link is {a|b}",
    RAW + "w0 answers 200 Fine\nclient receives 200\n    reason is {Fine|OK}",
    RAW + "w0 answers 200 Fine\nclient receives 200\n    version is HTTP/1.{1|0}",
    RAW + "w0 answers 200 Fine\nclient receives 200\n    framing is {length|chunked}",
    RAW + 'w0 answers 200\n    body "abc"\nclient receives 200\n    body is "{abc|abd}"',
    RAW + 'w0 answers 200\n    body "abc"\nclient receives 200\n    body is not "{abd|abc}"',
    RAW + 'w0 answers 200\n    body "abc"\nclient receives 200\n    body contains "{bc|bd}"',
    RAW + 'w0 answers 200\n    body "abc"\nclient receives 200\n    body lacks "{bd|bc}"',
    RAW + 'w0 answers 200\n    body "abc"\nclient receives 200\n    body matches /^a{.|}c$/',
    RAW + 'w0 answers 200\n    chunk "abc"\n    trailer x-sum: 5\nclient receives 200\n    trailer x-sum is {5|6}',
    RAW + 'w0 answers 200\n    events a b\nclient receives 200\n    events is a | {b|c}',
    ASKED + ANSWERED + "    header etag is {x|y}",
    ASKED + ANSWERED + "    header a is 1 | {2|3}",
    ASKED + ANSWERED + "    headers lacks {etag: y|etag: x}",
    ASKED + ANSWERED + "    header a matches /1.*{2|3}/",
    ASKED + ANSWERED + "    header etag as tag\n    header etag is {${tag}|a${tag}}",
    ASKED + ANSWERED + "    {no header b|no header etag}",
    ASKED + ANSWERED + "    {no json m|no json n}",
    ASKED + ANSWERED + "    {no trailer t|trailer t is 1}",
    ASKED + ANSWERED + "    {no interim|interim is 100}",
    ASKED + ANSWERED + "    {no interim header x|interim header x is 1}",
    ASKED + ANSWERED + "    json n is {7|8}",
    ASKED + ANSWERED + "    json n is not {8|7}",
    ASKED + ANSWERED + "    json n at least {7|7.5}",
    ASKED + ANSWERED + "    json n at most {7|6.5}",
    ASKED + ANSWERED + "    json {n|text} at least 0",
    ASKED + ANSWERED + '    json list[id=b].v is {2|1}',
    ASKED + ANSWERED + '    json list.1.id is "{b|a}"',
    ASKED + ANSWERED + "    json text contains {on|off}",
    ASKED + ANSWERED + "    json text lacks {off|on}",
    ASKED + ANSWERED + "    json text matches /^{l|m}/",
    ASKED + ANSWERED + "    json members n text {list|lisp}",
    RAW + 'w0 answers 200\n    body "abc"\nclient receives 200\n    {body is "abc"|json a is 1}',
    # what clients receive in parts
    STREAM + 'client receives chunk "data: {one|two}\\n\\n"\nw0 ends\nclient receives rest',
    STREAM + "client receives event {one|two}\nw0 ends\nclient receives rest",
    STREAM + 'client receives event one\nw0 sends event two\nw0 ends\nclient receives rest\n    body is "data: {two|one}\\n\\n"',
    STREAM + 'w0 ends\nclient receives bytes "b\\r\\n{d|e}"\nclient connects',
    STREAM + "client receives event one\nw0 {resets|ends}\nclient is cut",
    STREAM + 'w0 resets\nclient is cut\n    body is "data: {one|two}\\n\\n"',
    'client sends "GET /x HTTP/1.0\\r\\n\\r\\n"\nw0 receives\nw0 answers\nclient receives 200\nclient {is closed|receives 200}',
    RAW + "w0 answers\nclient receives 200\n{admin asks GET /health|client is closed}",
    RAW + 'w0 answers 200\n{client receives 200|client is closed}',
    # what workers receive
    "client asks GET /x\nw0 receives GET /{x|y}\nw0 answers\nclient receives 200",
    "client asks GET /x\nw0 receives {GET|PUT} /x\nw0 answers\nclient receives 200",
    "{client asks GET /x|client connects}\nw0 receives\nw0 answers\nclient receives 200",
    "workers 2\nclient asks GET /x\nany receives as first\nfirst resets\n{another|first} receives\nanother answers\nclient receives 200",
    "client asks PUT /x\n    body \"abc\"\nw0 receives\n    body is \"{abc|abd}\"\nw0 answers\nclient receives 200",
    "client asks PUT /x\n    header a: b\nw0 receives\n    header a is {b|c}\nw0 answers\nclient receives 200",
    "client asks PUT /x\nw0 receives\n    method is {PUT|GET}\nw0 answers\nclient receives 200",
    "client asks PUT /x\nw0 receives\n    target is /{x|y}\nw0 answers\nclient receives 200",
    "client asks PUT /x\n    json {\"a\": 1}\nw0 receives\n    json a is {1|2}\nw0 answers\nclient receives 200",
    "client asks PUT /x\nw0 {receives|receives nothing}\nw0 answers\nclient receives 200",
    EARLY + 'client sends "c"\nw0 receives bytes "ab{c|d}"\nw0 answers 200\n    header connection: close\nclient receives 200\nw0 closes',
    EARLY + 'client sends "c"\nw0 receives body\n    body is "ab{c|d}"\nw0 answers\nclient receives 200',
    'client asks PUT /x\n    body "abc"\nw0 receives head PUT /{x|y}\nw0 receives body\nw0 answers\nclient receives 200',
    EARLY + '    header content-length is {3|4}\nclient sends "c"\nw0 receives body\nw0 answers\nclient receives 200',
    "w0 serves 204\nclient asks GET /x\nclient receives 204\nw0 received {1|2}",
    "w0 serves 204\nclient asks GET /x\nclient receives 204\nw0 received 1\n    target is /{x|y}",
    "w0 serves 204\nclient asks GET /x\nclient receives {204|200}",
    "w0 breaks closing\nclient asks POST /x\nclient receives {502|200}",
    RAW + "{client closes|client waits}\nw0 is left",
    RAW + 'w0 begins\n{client closes|client waits}\nw0 keeps sending ": x\\n\\n"',
    # kvway
    RAW + "w0 answers\nclient receives 200\nkvway counts kvway_requests_total is {1|2}",
    RAW + "w0 answers\nclient receives 200\nkvway counts kvway_requests_total at least {1|2}",
    RAW + "w0 answers\nclient receives 200\nkvway counts kvway_requests_total at most {1|0}",
    RAW + "w0 answers\nclient receives 200\nkvway counts kvway_requests_total{status=\"{200|404}\"} is 1",
    "kvway shows kvway_worker_usable{worker=\"${w0.url}\"} is {1|0}",
    RAW + "{w0 answers|w0 waits}\nkvway is idle",
    "w0 is ill\nkvway logs {${w0.url}|nosuchtext}",
    "w0 is ill\nkvway logs /w[a-z]+er.*{${w0.url}|no.such}/",
    "w0 is ill\nkvway logs ${w0.url}\nkvway does not log {nosuchtext|${w0.url}}",
    ASKED + "w0 answers\nclient receives 200\nkvway notes mine\n    json status is {200|404}",
    ASKED + "w0 answers\nclient receives 200\nkvway notes {mine|other}",
    ASKED + "w0 answers\nclient receives 200\nkvway traces mine\n    json way[what=attempt].worker is \"{${w0.url}|x}\"",
    ASKED + "w0 answers\nclient receives 200\nkvway traces {mine|other}",
    "kvway counts kvway_{bad_requests|bad_request}_total is 0",
    "kvway shows kvway_request_seconds_count{|s} is 0",
    # blocks
    "until\n    admin asks GET /v1/models\n    admin receives 200\n        json object is \"{list|lisp}\"",
    "config\n    health.fall: 1\n    health.interval: 100ms\nw0 is {ill|well}\nuntil\n    client asks GET /ready\n    client receives 503",
    "w0 serves\nrepeat {2|3}\n    client asks GET /${n}\n    client receives 200\nw0 received 2\n    target is /1",
]
CHOICE = re.compile(r"\{([^{}|]*(?:\{[^{}|]*\}[^{}|]*)*)\|([^{}|]*(?:\{[^{}|]*\}[^{}|]*)*)\}", re.S)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    made = stage.Stages(lambda: tmp_path_factory.mktemp("kvway"))
    yield made
    made.close()


class Hasty(Player):
    """Waits for a moment only in steps from a line on, where it will wait in vain."""

    first = None

    def hurry(self, step):
        stage.WAIT.s = SHORT_S if self.first and step.line >= self.first else LONG_S

    def step(self, step):
        self.hurry(step)
        super().step(step)

    def block(self, step):
        self.hurry(step.below[-1])
        super().block(step)

    def after(self):
        stage.WAIT.s = SHORT_S if self.first else LONG_S
        super().after()


def play(stages, text, variables=None, hasty_from=None):
    """None, or what a reader sees of the failure."""
    case = parse("# shown\n" + text, "a.case").of_row(variables or {})
    stage.WAIT.s = LONG_S
    played = Hasty(stages.of(case), case, variables)
    played.first = hasty_from
    try:
        played.play()
    except expect.Failure as failure:
        shown = report(case, failure, stages.stage)
        stages.failed()
        return shown
    finally:
        stage.WAIT.s = LONG_S
    stages.ended()
    return None


@pytest.mark.parametrize("number", range(len(TRIALS)))
def test_an_expectation_holds_where_it_should_and_fails_where_it_should(stages, number):
    text = TRIALS[number]
    (choice,) = CHOICE.finditer(text)
    good, bad = text[: choice.start()], text[choice.end() :]
    shown = play(stages, good + choice.group(1) + bad)
    assert shown is None, shown
    first = 2 + good.count("\n")
    shown = play(stages, good + choice.group(2) + bad, hasty_from=first)
    lines = range(first, first + 1 + choice.group(2).count("\n") + bad.count("\n"))
    assert shown, "the wrong one passed"
    assert int(re.match(r"a\.case:(\d+): ", shown).group(1)) in lines, shown
    assert "  expected: " in shown and "  came:     " in shown
    assert "kvway.log" in shown and "listens on" in shown


def test_every_word_is_tried():
    """No verb, subject or relation without a trial, and each verb that expects has one in which it fails."""
    tried, failing, below = set(), set(), set()
    for text in TRIALS:
        (choice,) = CHOICE.finditer(text)
        case = parse("# shown\n" + text[: choice.start()] + choice.group(2) + text[choice.end() :])
        first = 2 + text[: choice.start()].count("\n")
        for step in case.walk():
            if step.verb is None:
                continue
            tried.add((step.verb.kind, step.verb.words))
            if step.line >= first:
                failing.add((step.verb.kind, step.verb.words))
            for each in step.below:
                if isinstance(each, expect.Expectation):
                    below.add((each.subject, "no" if each.absent else each.relation))
    expecting = {key for key, verb in VERBS.items() if verb.below in ("request", "response", "record")}
    expecting |= {("client", w) for w in ("receives chunk", "receives event", "receives bytes", "is closed")}
    expecting |= {("worker", w) for w in ("receives bytes", "receives nothing", "is left", "keeps sending")}
    expecting |= {("kvway", w) for w in ("counts", "shows", "is idle", "logs", "does not log")}
    assert expecting <= failing, expecting - failing
    assert {relation for _, relation in below} == {*expect.RELATIONS, "no"}
    assert {subject for subject, _ in below} == {*expect.REQUEST, *expect.RESPONSE}
    assert {kind for kind, _ in tried} == {"client", "worker", "kvway"}


AT_THE_END = {
    "a request that no step expects": ("client asks GET /x\nkvway counts kvway_upstream_connects_total at least 0\n"
                                       "w0 receives\nw0 answers\nclient receives 200\nclient asks GET /y\n"
                                       "until\n    kvway shows kvway_exchanges is 1\nclient2 asks GET /z\n"
                                       "until\n    kvway shows kvway_exchanges is 2", "received GET /y"),
}  # fmt: skip


@pytest.mark.parametrize("what", AT_THE_END)
def test_what_holds_at_the_end_of_every_case(stages, what):
    text, part = AT_THE_END[what]
    shown = play(stages, text)
    assert shown and "a.case: at its end" in shown and part in shown, shown


MEANWHILE = {
    "meanwhile client received\n": "client asks chat\n    member model: \"nosuch\"\nw0 receives",
    "meanwhile kvway closed the connection of client": "client asks GET /x HTTP/1.0\nw0 receives\nw0 answers\nclient receives 200\n"
                                                       "w0 receives",
}  # fmt: skip


@pytest.mark.parametrize("part", MEANWHILE)
def test_a_worker_that_waits_in_vain_says_what_clients_have(stages, part):
    text = MEANWHILE[part]
    shown = play(stages, text, hasty_from=2 + text.count("\n"))
    assert shown and re.sub(r"\n +", "\n", shown).find(part) > 0, shown


def test_a_client_that_waits_in_vain_says_what_workers_have(stages):
    shown = play(stages, "client asks chat\nclient receives 200", hasty_from=3)
    assert shown and "meanwhile w0 received POST /v1/chat/completions" in shown, shown


def test_nothing_is_in_flight_at_the_end_of_a_case(stages, monkeypatch):
    monkeypatch.setattr(Router, "inflight", lambda self: {"kvway_exchanges[]": 1.0})
    shown = play(stages, "w0 serves\nclient asks GET /x\nclient receives 200", hasty_from=9)
    assert shown and "at its end" in shown and "nothing in flight at kvway" in shown and "kvway_exchanges[] 1" in shown


def test_a_worker_that_cannot_serve_fails_its_case(stages):
    text = "w0 serves\nclient asks GET /x\nclient receives 200"
    assert play(stages, text) is None
    stages.of(parse("# shown\n" + text)).workers["w0"].rig.failures.append(ValueError("bad script"))
    shown = play(stages, text)
    assert shown and "at its end" in shown and "bad script" in shown


MISTAKES = {
    "client asks GET /x\nclient recieves 200": (3, "a client can: asks, begins,"),
    "worker7 receives": (2, "known here: client, client2 ..., admin, kvway, w0"),
    "w1 receives": (2, "unknown actor `w1`"),
    "client asks GET /x\nclient receives 200\n    heder a is b": (4, "known here: header, headers, body"),
    "client asks GET /x\nclient receives 200\n    header a equals b": (4, "known: is not, is, matches"),
    "client asks GET /x\n    heade a: b": (3, "known: header, trailer, body"),
    "client asks GET": (2, "expected METHOD TARGET"),
    "client asks chatt": (2, "one of chat, stream"),
    "client receives twohundred": (2, "expected a status"),
    "client sends abc": (2, "expected bytes in quotes"),
    'client sends "a\\q"': (2, "unknown escape \\q"),
    'client sends "a\\xg0"': (2, "two hexadecimal digits"),
    "client asks GET /${nosuch}": (2, "unknown variable ${nosuch}; known: dir"),
    "client receives 200\n    body matches /(/": (3, "/(/"),
    "client receives 200\n    json a is b": (3, "expected JSON"),
    "client receives 200\n    json a..b is 1": (3, "expected a path"),
    "client receives 200\n    no body": (3, "`no` stands before"),
    "client receives 200\n    body members a": (3, "only json"),
    "client receives 200\n    body as 1": (3, "as wants"),
    "kvway counts kvway_x = 1": (2, "is|at least|at most NUMBER"),
    "kvway counts kvway_x{a=b} is 1": (2, "is|at least|at most NUMBER"),
    "kvway is idle\n    json a is 1": (3, "nothing stands below"),
    "kvway is idle now": (2, "nothing is expected here"),
    "repeat\n    kvway is idle": (2, "repeat NUMBER"),
    "until 3\n    kvway is idle": (2, "repeat NUMBER, or until"),
    "workers two\nkvway is idle": (2, "workers NUMBER"),
    "kvway is idle\nworkers 2": (3, "stands before the first step"),
    "config\n    loops 2\nkvway is idle": (3, "key: value"),
    "worker w0 modles a\nkvway is idle": (2, "models|base|prefix|key"),
    "worker w1 models a\nkvway is idle": (2, "expected: worker w0"),
    "each a | b\n    1\nkvway is idle": (3, "2 columns"),
    "each\n    1\nkvway is idle": (2, "each NAME"),
    "each how\n    answrs\nw0 receives\nw0 ${how}": (5, "unknown verb: w0 answrs; a worker can"),
    "file\n    1\nkvway is idle": (2, "file NAME"),
    "    kvway is idle": (2, "below no other"),
    "client asks chat\n\theader a: b": (3, "not tabs"),
    "w0 received some": (2, "expected a number"),
    "w0 answers fine": (2, "expected STATUS"),
    "w0 receives a b c": (2, "[METHOD TARGET] [as NAME]"),
    "workers 1": (1, "without a step"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_file_is_named(text):
    line, part = MISTAKES[text]
    with pytest.raises(CaseError) as error:
        parse("# shown\n" + text)
    assert error.value.line == line and part in str(error.value), error.value


def test_a_file_begins_with_what_it_shows():
    with pytest.raises(CaseError, match="begins with a comment"):
        parse("kvway is idle")


def test_rows_of_tables_are_cases_of_their_own():
    case = parse("# shown\neach a | b\n    1 | x y\n    2 | z\neach c\n    3\nclient asks GET /${a}${b}${c}")
    assert list(case.rows()) == [("1 x y 3", {"a": "1", "b": "x y", "c": "3"}), ("2 z 3", {"a": "2", "b": "z", "c": "3"})]


def test_rows_change_what_kvway_is_started_with(stages):
    text = "config\n    http.forwarded: ${how}\neach how\n    off\n    both\nclient asks GET /x\nw0 receives\n    {}\nw0 answers\nclient receives 200"
    assert play(stages, text.replace("{}", "no header forwarded"), {"how": "off"}) is None
    assert play(stages, text.replace("{}", "header forwarded contains for="), {"how": "both"}) is None


def test_a_row_may_give_an_actor_and_a_verb_with_its_arguments(stages):
    text = "each actor | how\n    w0 | answers 404\nclient asks POST /x\n${actor} receives\nany ${how}\nclient receives 404"
    assert play(stages, text, {"actor": "any", "how": "answers 404"}) is None
    shown = play(stages, text, {"actor": "any", "how": "resets"}, hasty_from=7)
    assert shown and "a.case:7: client receives 404" in shown and "502" in shown


def test_escapes_of_a_table_count_in_quotes_and_those_of_the_wire_do_not():
    names = Names({"row": r"a\r\n", "came": r"a\r\n"})
    names.tables = {"row"}
    assert Data(r'"${row}" "-"*3 "${came}\x00"', 1).bytes(names) == b"a\r\n---a\\r\\n\0"


def test_the_kernel_knows_what_was_not_read():
    """Its two sources say the same."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            assert kernel.unread(client) == 0
            client.sendall(b"abc")
            ends = peer.getsockname(), peer.getpeername()
            until(lambda: kernel.unread(client) == 3, 5, "three bytes wait")
            assert kernel.listed(*ends) == (3, 0) and kernel.asked(*ends) in ((3, 0), None)
            assert peer.recv(2) == b"ab" and kernel.unread(client) == 1 and kernel.listed(*ends) == (1, 0)
            assert peer.recv(2) == b"c" and kernel.unread(client) == 0


def test_bytes_are_shown_as_a_file_writes_them():
    assert readable(b'GET "a"\r\n\0\xff\\') == '"GET \\"a\\"\\r\\n"\n"\\0\\xff\\\\"'
    assert len(readable(b"x" * 5000)) < 700 and "4400 bytes" in readable(b"x" * 5000)


def test_a_kvway_is_shared_where_it_remembers_nothing(stages):
    well = "w0 serves\nclient asks chat\nclient receives 200"
    assert play(stages, well) is None
    first = stages.stage
    assert play(stages, well) is None and stages.stage is first
    assert play(stages, "w0 serves 500\nclient asks chat\nclient receives 500") is None and stages.stage is None
    assert play(stages, "workers 2\nfleet serves\nclient asks chat\nclient receives 200") is None
    assert stages.stage is None, "with several workers, whose turn it is would be remembered"
    assert play(stages, "config\n    loops: 1\n" + well) is None and stages.stage is not first


PAGE = (pathlib.Path(__file__).parents[1] / "requests" / "README.md").read_text()


def test_the_example_of_the_page_holds(stages):
    example = re.search(r"(?m)(?:^    # A worker.*\n)(?:(?:    .*)?\n)+", PAGE).group()
    assert "another receives" in example and play(stages, re.sub(r"(?m)^    ", "", example)) is None


def test_the_page_names_every_word():
    """README.md is the page from which a newcomer learns them."""
    words = [words for _, words in VERBS] + [*expect.RELATIONS, *expect.REQUEST, *expect.RESPONSE]
    words += [*language.HEADINGS, *language.BLOCKS, *language.SHORT, *language.WORKER_SETTINGS]
    missing = sorted({word for word in words if not re.search(rf"`(?:[^`]* )?{re.escape(word)}(?: [^`]*)?`", PAGE)})
    assert not missing, missing
