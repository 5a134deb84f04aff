"""The text of a case file: a comment, what kvway and workers it wants, tables, and its steps in the order of time.

A step is a line `ACTOR VERB ARGUMENTS`; the lines indented below belong to it. Verbs register themselves (`verb`), with
the kind of their actor, of their arguments and of the lines below, so that all of a file is checked before it is played:
an unknown word is an error that names its line and the words that are known there.
"""

import itertools
import json
import re
from dataclasses import dataclass, field, replace

from rig.play import expect
from rig.play.values import VARIABLE, CaseError, Data, Json, Names, Regex, Text

SHORT = ("chat", "stream", "completion", "message", "embedding")
HEADINGS = ("config", "file", "workers", "worker", "each")
BLOCKS = ("repeat", "until")
WORKER_SETTINGS = ("models", "base", "prefix", "key")
VERBS = {}  # (kind of actor, words): Verb


@dataclass
class Verb:
    kind: str
    words: str
    arguments: str
    below: str
    run: object


@dataclass
class Step:
    line: int
    text: str
    actor: str = ""
    verb: Verb = None
    given: object = None  # its arguments, parsed
    below: list = field(default_factory=list)  # what stands below, parsed
    times: int = 0  # of a block `repeat`


@dataclass
class Case:
    path: str
    essay: str = ""
    config: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    workers: int = 1
    settings: dict = field(default_factory=dict)  # worker: {setting: words}
    tables: list = field(default_factory=list)  # (names, [(line, values)])
    steps: list = field(default_factory=list)
    lines: list = field(default_factory=list)  # of which the steps are made

    def of_row(self, variables):
        """The case with a row's values in what kvway is started with, and where its steps name them as actors and verbs."""
        fill = Names(variables).fill_known
        config = {fill(key): plain(fill(value)) for key, value in self.config.items()}
        files = {name: fill(content) for name, content in self.files.items()}
        names = set()
        steps = [step_of(self, line, names, variables) for line in self.lines]
        return replace(self, config=config, files=files, steps=steps)

    def rows(self):
        """(name, variables) of each way to play the file; one without a name if there is no table."""
        for picked in itertools.product(*([row for _, row in rows] for _, rows in self.tables)):
            variables = {}
            for (columns, _), values in zip(self.tables, picked):
                variables.update(zip(columns, values))
            yield " ".join(" ".join(values) for values in picked), variables

    def walk(self, steps=None):
        for step in self.steps if steps is None else steps:
            yield step
            if step.verb is None:
                yield from self.walk(step.below)

    @property
    def reads_late(self):
        """Does a step say when a worker reads bodies? Else workers read them before `receives`."""
        return any(step.verb and step.verb.words == "receives head" and step.verb.kind == "worker" for step in self.walk())


def verb(kind, words, arguments="none", below="none"):
    """Registers what an actor of that kind can do."""

    def add(run):
        VERBS[kind, words] = Verb(kind, words, arguments, below, run)
        return run

    return add


class Line:
    """A line of the file that is not blank, with those indented below it."""

    def __init__(self, number, text):
        self.number, self.text, self.below = number, text, []


def tree_of(text):
    """(essay, lines): comments are left out, those before the first other line are the essay."""
    essay, roots, stack = [], [], []
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if stripped.startswith("#"):
            if not roots:
                essay.append(stripped.lstrip("# "))
            continue
        if not stripped:
            continue
        if "\t" in raw[: len(raw) - len(raw.lstrip())]:
            raise CaseError(number, "lines are indented with blanks, not tabs")
        indent, line = len(raw) - len(raw.lstrip()), Line(number, stripped)
        while stack and stack[-1][0] >= indent:
            stack.pop()
        (stack[-1][1].below if stack else roots).append(line)
        if not stack and indent:
            raise CaseError(number, "this line is indented, but stands below no other")
        stack.append((indent, line))
    return " ".join(essay), roots


def parse(text, path="case"):
    """The Case of a file's text, or CaseError."""
    essay, lines = tree_of(text)
    if not essay:
        raise CaseError(1, "a file begins with a comment that says what a user would notice")
    case, names = Case(path, essay), set()
    for line in lines:
        word, _, rest = line.text.partition(" ")
        if word in HEADINGS:
            if case.lines:
                raise CaseError(line.number, f"`{word}` stands before the first step")
            heading(case, word, rest.strip(), line)
        else:
            case.lines.append(line)
    if not case.lines:
        raise CaseError(1, "a file without a step shows nothing")
    _, first = next(case.rows())
    case.steps = [step_of(case, line, names, first) for line in case.lines]
    check_variables(case, text, names)
    return case


def check_variables(case, text, bound):
    """Each ${name} is of a table, captured by `as`, or one of those that every case has."""
    known = {name for columns, _ in case.tables for name in columns} | set(re.findall(r"\bas (\w+)\s*$", text, re.M))
    known |= {"n", "dir", "kvway.port", "kvway.admin"}
    known |= {f"w{i}.{what}" for i in range(case.workers) for what in ("url", "port", "host")}
    known |= {f"{name}.{what}" for name in bound for what in ("url", "port", "host")}
    for number, line in enumerate(text.splitlines(), 1):
        for name in VARIABLE.findall(line) if not line.strip().startswith("#") else ():
            if name not in known:
                raise CaseError(number, f"unknown variable ${{{name}}}; known: {', '.join(sorted(known))}")


def heading(case, word, rest, line):
    if word == "config":
        for below in line.below:
            key, colon, value = below.text.partition(":")
            if not colon:
                raise CaseError(below.number, f"expected `key: value` of kvway's configuration, found: {below.text}")
            case.config[key.strip()] = value.strip()
    elif word == "file":
        if not rest:
            raise CaseError(line.number, "expected: file NAME, its lines below")
        case.files[rest] = "".join(below.text + "\n" for below in line.below)
    elif word == "workers":
        if not rest.isdigit():
            raise CaseError(line.number, f"expected: workers NUMBER, found: workers {rest}")
        case.workers = int(rest)
    elif word == "worker":
        name, setting, *words = [*rest.split(), "", ""]
        if setting not in WORKER_SETTINGS or name not in worker_names(case):
            raise CaseError(line.number, f"expected: worker {'|'.join(worker_names(case))} "
                                         f"{'|'.join(WORKER_SETTINGS)} ..., found: {line.text}")  # fmt: skip
        case.settings.setdefault(name, {})[setting] = [w for w in words if w]
    else:
        columns = tuple(column.strip() for column in rest.split("|"))
        rows = [(b.number, tuple(cell.strip() for cell in re.split(r"\s\|\s", b.text))) for b in line.below]
        for number, cells in rows:
            if len(cells) != len(columns):
                raise CaseError(number, f"{len(columns)} columns ({' | '.join(columns)}), but {len(cells)} cells in this row")
        if not all(column.isidentifier() for column in columns) or not rows:
            raise CaseError(line.number, "expected: each NAME | NAME, and rows below")
        case.tables.append((columns, rows))


def plain(text):
    """A value of a configuration: JSON, or a word as YAML has it."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def worker_names(case):
    return [f"w{i}" for i in range(case.workers)]


def kind_of(case, actor, names, line):
    if actor == "admin" or re.fullmatch(r"client\w*", actor):
        return "client"
    if actor == "kvway":
        return "kvway"
    if actor in ("any", "another", "fleet") or actor in names or actor in worker_names(case):
        return "worker"
    known = ["client", "client2 ...", "admin", "kvway", *worker_names(case), "any", "another", "fleet", *sorted(names)]
    raise CaseError(line.number, f"unknown actor `{actor}`; known here: {', '.join(known)}; blocks: {', '.join(BLOCKS)}; "
                                 f"before the first step: {', '.join(HEADINGS)}")  # fmt: skip


def step_of(case, line, names, row):
    """The step of a line, whose actor and verb may be variables of a table: `row` has their values."""
    first, _, rest = line.text.partition(" ")
    second, _, rest = rest.strip().partition(" ")
    actor, rest = Names(row).fill_known(first), f"{Names(row).fill_known(second)} {rest}".strip()
    if actor in BLOCKS:
        if actor == "repeat" and not rest.isdigit() or actor == "until" and rest or not line.below:
            raise CaseError(line.number, "expected: repeat NUMBER, or until, and steps below")
        below = [step_of(case, each, names, row) for each in line.below]
        return Step(line.number, line.text, actor=actor, below=below, times=int(rest or 0))
    kind = kind_of(case, actor, names, line)
    rest = re.sub(r"\s+", " ", rest) if '"' not in rest and "/" not in rest else rest
    words = sorted((words for k, words in VERBS if k == kind), key=len, reverse=True)
    for each in words:
        match = re.match(re.escape(each).replace(r"\ ", r"\s+") + r"(?=\s|$)", rest)
        if match:
            break
    else:
        raise CaseError(line.number, f"unknown verb: {actor} {rest}; a {kind} can: {', '.join(sorted(words))}")
    found = VERBS[kind, each]
    rest = rest[match.end() :].strip()
    if found.below == "data":
        rest = " ".join([rest, *(b.text for b in line.below)]).strip()
        lines = []
    else:
        lines = line.below
    step = Step(line.number, f"{actor} {found.words} {rest}".strip(), actor, found)
    step.given = ARGUMENTS[found.arguments](rest, line.number, names)
    if lines and found.below == "none":
        raise CaseError(lines[0].number, f"nothing stands below `{found.words}`")
    step.below = [BELOW[found.below](each.text, each.number) for each in lines]
    return step


# --- arguments ---


def none(rest, line, names):
    if rest:
        raise CaseError(line, f"nothing is expected here: {rest}")


def request(rest, line, names):
    """(method, target, version, short form)"""
    words = rest.split()
    if len(words) == 1 and words[0] in SHORT:
        return ("POST", "", "HTTP/1.1", words[0])
    if len(words) not in (2, 3) or len(words) == 3 and not words[2].startswith("HTTP/"):
        raise CaseError(line, f"expected METHOD TARGET [HTTP/1.0], or one of {', '.join(SHORT)}; found: {rest}")
    return (words[0], words[1], words[2] if len(words) == 3 else "HTTP/1.1", None)


def received(rest, line, names):
    """(method, target, name)"""
    match = re.fullmatch(r"(?!as )(?:(\S+) (\S+))?()|(?:(?!as )(\S+) (\S+) )?as (\w+)", rest)
    if match is None:
        raise CaseError(line, f"expected [METHOD TARGET] [as NAME], found: {rest}")
    method, target, _, method_of_name, target_of_name, name = match.groups()
    if name:
        names.add(name)
    return method or method_of_name, target or target_of_name, name


def statuses(rest, line, names):
    if not re.fullmatch(r"(\d{3}|\$\{\w+\})(\|(\d{3}|\$\{\w+\}))*", rest):
        raise CaseError(line, f"expected a status, or several as 400|501, found: {rest or 'nothing'}")
    return rest


def answered(rest, line, names):
    """(status, reason), or None for the answer that fits the request"""
    if not rest:
        return None
    match = re.fullmatch(r"(\d{3}|\$\{\w+\})(?: (.*))?", rest)
    if match is None:
        raise CaseError(line, f"expected STATUS [REASON], or nothing for the usual answer, found: {rest}")
    return match.groups()


def data(rest, line, names):
    return Data(rest, line)


def event(rest, line, names):
    if not rest:
        raise CaseError(line, "expected the data of an event")
    return Text(rest, line)


def number(rest, line, names):
    if not rest.isdigit():
        raise CaseError(line, f"expected a number, found: {rest or 'nothing'}")
    return int(rest)


def metric(rest, line, names):
    """(name, labels, relation, number)"""
    match = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (is|at least|at most) ([\d.]+)", rest)
    labels = re.findall(r'(\w+)="([^"]*)"', match.group(2) or "") if match else []
    if match is None or ",".join(f'{k}="{v}"' for k, v in labels) != (match.group(2) or ""):
        raise CaseError(line, f'expected NAME{{label="value",...}} is|at least|at most NUMBER, found: {rest}')
    return match.group(1), labels, match.group(3), float(match.group(4))


def text(rest, line, names):
    if not rest:
        raise CaseError(line, "expected a text")
    return Regex(rest, line) if rest.startswith("/") and rest.endswith("/") and len(rest) > 1 else Text(rest, line)


def words(rest, line, names):
    if not rest:
        raise CaseError(line, "expected one word or more")
    return rest.split()


ARGUMENTS = {
    "none": none, "request": request, "received": received, "statuses": statuses, "answered": answered, "data": data,
    "event": event, "number": number, "metric": metric, "text": text, "words": words,
}  # fmt: skip

# --- lines below ---


def part(text, line):
    """(what, name, value) of a message that is sent."""
    what, _, rest = text.partition(" ")
    rest = rest.strip()
    if what in ("header", "trailer", "member"):
        name, colon, value = rest.partition(":")
        if not colon:
            raise CaseError(line, f"expected `{what} NAME: VALUE`, found: {text}")
        value = value.strip()
        return what, name.strip(), Json(value, line) if what == "member" else Text(value, line)
    if what in ("body", "chunk", "text"):
        return what, "", Data(rest, line)
    if what == "json":
        return what, "", Json(rest, line)
    if what == "events":
        return what, "", rest.split()
    if what in SHORT and not rest:
        return "short", what, None
    known = ["header", "trailer", "body", "json", "member", "text", "chunk", "events", *SHORT]
    raise CaseError(line, f"unknown part of a message: {text}; known: {', '.join(known)}")


def expectations(subjects):
    return lambda text, line: expect.Expectation(text, line, subjects)


BELOW = {
    "message": part,
    "request": expectations(expect.REQUEST),
    "response": expectations(expect.RESPONSE),
    "record": expectations(expect.RECORD),
    "lines": lambda text, line: Text(text, line),
}
