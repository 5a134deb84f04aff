#!/usr/bin/env python3
"""lint.py RULE... - checks rules of the source tree that no compiler checks.

Each rule is a function that yields faults as "FILE[:LINE]: what is wrong". Without arguments all
rules run. Exit status 0: no fault; 1: faults, printed; 77: the rule could not be checked here.
Only files that git tracks, or would track, are looked at.
"""

import ast
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


class CannotCheck(Exception):
    """What this machine lacks."""


def tracked():
    """Paths of all files that belong to the project, relative to its root."""
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    git += ["--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(git, capture_output=True, check=True).stdout.decode()
        names = [n for n in out.split("\0") if n]
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]
        names = [n for n in names if not n.startswith(("build", ".git/"))]
    return sorted(pathlib.Path(n) for n in names if (ROOT / n).is_file())


FILES = tracked()


def lines(path):
    return (ROOT / path).read_text(errors="replace").splitlines()


def with_suffix(*suffixes):
    return [p for p in FILES if p.suffix in suffixes]


def under(path, *folders):
    return str(path).startswith(tuple(f + "/" for f in folders))


# --- layering -----------------------------------------------------------------------------------

# What each room may include besides itself. Tests and bench may include everything. An include names
# its room: "proxy/client.h" is in src/router/proxy, "base/log.h" in src/common/base.
COMMON = {"include", "src/common"}
ROUTER = COMMON | {"config", "routing"}
FEEDS = ROUTER | {"src/router/fleet", "src/router/feeds"}
MAY_INCLUDE = {
    "include": {"include"},
    "src/common": COMMON,
    "config": COMMON | {"config"},
    "routing": {"include", "src/common/base", "routing"},
    "src/router/openai": COMMON | {"src/router/openai"},
    "src/router/fleet": ROUTER | {"src/router/fleet"},
    "src/router/feeds": FEEDS | {"src/router/state"},
    "src/router/admin": FEEDS | {"src/router/auth", "src/router/sharing", "src/router/state", "src/router/takeover", "src/router/rates", "src/router/openai", "src/router/admission", "src/router/trace", "src/router/usage", "src/router/otel", "src/router/admin"},
    "src/router/status": FEEDS | {"src/router/auth", "src/router/sharing", "src/router/state", "src/router/trace", "src/router/admin", "src/router/status"},
    "src/router/auth": COMMON | {"config", "src/router/auth"},
    "src/router/admission": {"include", "src/common/base", "src/common/metrics", "routing", "src/router/admission"},
    "src/router/rates": {"include", "src/common/base", "src/router/rates"},
    "src/router/trace": COMMON | {"src/router/trace"},
    "src/router/usage": COMMON | {"src/router/usage"},
    "src/router/usage/command": ROUTER | {"src/router"},
    "src/router/otel": ROUTER | {"src/router/fleet", "src/router/openai", "src/router/trace", "src/router/otel"},
    "src/router/takeover": COMMON | {"src/router/takeover"},
    "src/router/state": ROUTER | {"src/router/fleet", "src/router/state"},
    "src/router/sharing": COMMON | {"config", "routing", "src/router/admission", "src/router/fleet", "src/router/rates", "src/router/usage", "src/router/sharing"},
    "src/router/proxy": FEEDS | {"src/router/auth", "src/router/rates", "src/router/openai", "src/router/admin", "src/router/admission", "src/router/trace", "src/router/usage", "src/router/proxy"},
    "src/router": ROUTER | {"src/router"},
    "cache": COMMON | {"cache"},
}  # fmt: skip
# Inside src/common: what each room of the floor stands on.
FLOOR = {
    "base": set(),
    "http": {"base"},
    "tls": {"base"},
    "redis": {"base", "tls"},
    "metrics": {"base"},
    "server": {"base", "http", "settings"},
    "settings": {"base"},
    "wire": {"base"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# Where the compiler looks for what an #include names, by the room that includes it.
ROUTER_ROOTS = ("include", "src/common", "src/router", ".")
ROOTS = {"src/common": ("include", "src/common"), "cache": ("include", "src/common", "cache")}
EVERYWHERE = ("include", "src/common", "src/router", "cache", ".")


def room_of(path):
    """Longest folder of MAY_INCLUDE that holds the path; None for tests and bench."""
    best = None
    for room in MAY_INCLUDE:
        if under(path, room) and (best is None or len(room) > len(best)):
            best = room
    return best


def allowed(room, header):
    """Whether files of the room may include the header."""
    return any(under(header, folder) for folder in MAY_INCLUDE[room])


def layering():
    """An include names its room, and each room includes only what lies below it."""
    present = set(FILES)
    for path in with_suffix(".c", ".h", ".def", ".inc"):
        room = room_of(path)
        folder = room or ""
        while folder and folder not in ROOTS:
            folder = str(pathlib.Path(folder).parent) if "/" in folder else ""
        roots = ROOTS.get(folder, ROUTER_ROOTS if room else EVERYWHERE)
        for number, line in enumerate(lines(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            name = match.group(1)
            if ".." in name:
                yield f"{path}:{number}: include by room, not by a path with '..'"
                continue
            found = [pathlib.Path(root) / name for root in roots]
            found = [header for header in found if header in present]
            if room is None:
                if not found and path.parent / name not in present and "/" in name:
                    yield f"{path}:{number}: {name} is not a header of this project"
                continue
            if not found:
                yield f"{path}:{number}: {name}: name the header's room, as in \"proxy/client.h\""
            elif len(found) > 1:
                yield f"{path}:{number}: {name} may be any of {', '.join(map(str, found))}"
            elif not allowed(room, found[0]):
                yield f"{path}:{number}: {room} must not include {found[0]}"
            elif room == "src/common" and under(found[0], "src/common"):
                mine, its = path.parts[2], found[0].parts[2]
                if its != mine and its not in FLOOR.get(mine, set()):
                    yield f"{path}:{number}: src/common/{mine} must not include {found[0]}"


# --- sizes --------------------------------------------------------------------------------------

FUNCTION_LIMIT = 80
FILE_LIMIT = 800
MAIN_LIMIT = 150


def sizes():
    """A file past 800 lines, a function past 80, a main.c past 150 wants to be several."""
    for path in with_suffix(".c", ".h", ".py", ".sh"):
        count = len(lines(path))
        limit = MAIN_LIMIT if str(path) == "src/router/main.c" else FILE_LIMIT
        if count > limit:
            yield f"{path}: {count} lines, at most {limit}"
    for path in with_suffix(".c"):
        start = None
        for number, line in enumerate(lines(path), 1):
            if line == "{":
                start = number
            elif line.startswith("}") and start:
                if number - start > FUNCTION_LIMIT:
                    yield f"{path}:{start}: {number - start} lines, at most {FUNCTION_LIMIT}"
                start = None


# --- columns ------------------------------------------------------------------------------------

COLUMNS = 100  # as in .clang-format, with tabs of eight
NARROW = ("src", "include", "routing")
WIDE = ("src/router/proxy", "src/router/trace")  # still to be wrapped


def columns():
    """Two files side by side fit on a screen: no line of C is wider than 100 columns."""
    for path in with_suffix(".c", ".h", ".def", ".inc"):
        if not under(path, *NARROW) or under(path, *WIDE):
            continue
        for number, line in enumerate(lines(path), 1):
            width = len(line.expandtabs(8))
            if width > COLUMNS:
                yield f"{path}:{number}: {width} columns, at most {COLUMNS}"


# --- words --------------------------------------------------------------------------------------

# Spelled so that this file does not accuse itself.
UNFINISHED = re.compile(
    r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|(?<!\")\b[Nn]ot imple" r"mented\b"
)
TRACES = [
    (re.compile(r"\(D\d{1,2}\)|\(D\d{1,2},"), "a decision's number says nothing here: give the reason"),
    (re.compile(r"/wo" r"rk/|\.\./sha" r"red|/tmp/[a-z]*eng"), "a path of one machine"),
    (re.compile(r"\bissu" r"e #?\d", re.I), "a number of some tracker"),
    (re.compile(r"\bA" r"I[- ](generated|assist)|\bhel" r"per session|language model wrote", re.I), "how it was made"),
]  # fmt: skip


def words():
    """Nothing unfinished, nothing that only made sense while it was written."""
    for path in FILES:
        if path.suffix in (".png", ".gz", ".bin") or "corpus" in path.parts or path.name == "LICENSE":
            continue
        if str(path) == "tests/lint/lint.py":
            continue
        for number, line in enumerate(lines(path), 1):
            if UNFINISHED.search(line):
                yield f"{path}:{number}: unfinished: {line.strip()[:80]}"
            for pattern, why in TRACES:
                if pattern.search(line):
                    yield f"{path}:{number}: {why}: {line.strip()[:80]}"


# --- readmes, keys, top level ---------------------------------------------------------------------

NO_README = {"corpus", "data", "examples", ".ci", ".github", "rig"}


def readmes():
    """Every folder says what lives there and what may not; the steps of a request stand in the table of theirs."""
    folders = {p.parent for p in FILES if p.parent != pathlib.Path(".")}
    for folder in sorted(folders | {a for f in folders for a in f.parents} - {pathlib.Path(".")}):
        parts = set(folder.parts)
        # They mirror the tree, or are described by the page above them.
        if parts & NO_README or under(folder, "tests/unit", "tests/fuzz", "tests/requests", "deploy/kustomize", "deploy/helm"):
            continue
        if str(folder) == "include":
            continue
        if folder / "README.md" not in FILES:
            yield f"{folder}: no README.md"
    if pathlib.Path("README.md") not in FILES:
        yield "README.md: missing"
    steps = ROOT / "src/router/proxy/steps/README.md"
    rows = "".join(line for line in lines(steps) if line.startswith("| `"))
    for step in re.findall(r"^KVW_STEP\((\w+)\)", (ROOT / "src/router/proxy/steps.def").read_text(), re.M):
        if f"`{step}`" not in rows:
            yield f"{steps.relative_to(ROOT)}: step {step} is missing in the table"


def keys():
    """Keys of the configuration are written down once, in config/keys.def."""
    definition = (ROOT / "config/keys.def").read_text()
    paths = re.findall(r'^KVW_KEY\("([^"]+)"', definition, re.M)
    fields = re.findall(r'^KVW_KEY\("[^"]+",\s*\w+,\s*(\w+)', definition, re.M)
    if not paths:
        yield "config/keys.def: no key found"
    for what, items in (("key", paths), ("field", fields)):
        for item in sorted({i for i in items if items.count(i) > 1}):
            yield f"config/keys.def: {what} {item} twice"
    for path in with_suffix(".c"):
        if not under(path, "src", "routing"):
            continue
        for number, line in enumerate(lines(path), 1):
            for key in paths if "KVW_KEY" in line else ():
                if "." in key and re.search(rf'"{re.escape(key)}[":]', line):
                    yield f"{path}:{number}: key {key} is defined outside keys.def"
    reference = ROOT / "config/REFERENCE.md"
    if reference.exists():
        text = reference.read_text()
        for key in paths:
            if key not in text:
                yield f"config/REFERENCE.md: {key} is missing: run `ninja -C BUILD reference`"
    else:
        yield "config/REFERENCE.md: missing"


TOP_LEVEL = {
    "meson.build", "meson_options.txt", "README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md",
    "include", "config", "routing", "src", "cache", "bench", "tests", "deploy",
    ".clang-format", ".clang-tidy", ".editorconfig", ".gitignore", ".ci",
}  # fmt: skip


def top_level():
    """The top level holds what the README promises, nothing else."""
    present = {p.parts[0] for p in FILES}
    for name in sorted(present - TOP_LEVEL):
        yield f"{name}: does not belong at the top level"
    for name in sorted({"README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md"} - present):
        yield f"{name}: missing"


# --- links, tests ---------------------------------------------------------------------------------

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchor_of(heading):
    text = re.sub(r"[`*_]", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def links():
    """A link in a Markdown file that stays in the repository leads somewhere."""
    for path in with_suffix(".md"):
        code = False
        for number, line in enumerate(lines(path), 1):
            if line.lstrip().startswith("```"):
                code = not code
            if code:
                continue
            for target in LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                file = (ROOT / path.parent / name) if name else ROOT / path
                if not file.exists():
                    yield f"{path}:{number}: {target} does not exist"
                elif anchor and file.suffix == ".md":
                    headings = re.findall(r"^#+\s+(.*)$", file.read_text(), re.M)
                    if anchor not in map(anchor_of, headings):
                        yield f"{path}:{number}: {target}: no such heading"


def tests_listed():
    """A test that no suite runs is no test. In C it is named x_test.c, in Python test_x.py."""
    for path in FILES:
        if under(path, "tests") and re.search(r"^test_\w+\.(c|cc)$|_(test|smoke)\.py$", path.name):
            yield f"{path}: name it x_test.c, or test_x.py"
    for folder, pattern in (("tests/integration", r"test_\w+\.py$"), ("tests/unit", r"\w+\.c$|test_\w+\.py$")):
        for path in FILES:
            if not under(path, folder) or not re.search(pattern, path.name):
                continue
            build = path.parent / "meson.build"
            listed = (ROOT / build).read_text() if (ROOT / build).exists() else ""
            short = path.stem.removeprefix("test_").removesuffix("_test")
            if not re.search(rf"(?<![a-z_])({re.escape(path.stem)}|{re.escape(short)})\b", listed):
                yield f"{path}: not listed in {build}"


# --- globals, whitespace, scripts -------------------------------------------------------------------

# A definition at file scope that is neither const nor thread-local nor a function.
GLOBAL = re.compile(
    r"^(?:static\s+)?(?!.*\b(?:const|_Thread_local|typedef|extern|return|inline|enum\s+\w+\s*\{)\b)"
    r"(?:_Atomic\s+)?(?:struct\s+\w+|unsigned\s+\w+|u?int\d*(?:_t)?|size_t|bool|char|double|float|long|void|"
    r"volatile\s+\w+|atomic_\w+|pthread_\w+)\b[\s*]*\w+(?:\[[^\]]*\])*\s*(?:=[^=].*|;)\s*(?:/\*.*)?$"
)
# What must be global, and why: signals and logging have no context to hang state on.
MAY_BE_GLOBAL = {
    ("src/common/base/log.c", "log"),
}


def globals_rule():
    """No mutable state at file scope: everything hangs off an object that has an owner."""
    for path in with_suffix(".c"):
        if not under(path, "src", "routing", "config", "cache"):
            continue
        if str(path) in {p for p, _ in MAY_BE_GLOBAL}:
            continue
        depth = 0
        for number, line in enumerate(lines(path), 1):
            if depth == 0 and GLOBAL.match(line):
                yield f"{path}:{number}: mutable global: {line.strip()[:80]}"
            depth += line.count("{") - line.count("}")


def whitespace():
    """Lines end without blanks, files with one newline, C is indented by tabs."""
    for path in with_suffix(".c", ".h", ".def", ".py", ".sh", ".md", ".build", ".yaml"):
        if "corpus" in path.parts or "fixtures" in path.parts:
            continue
        text = (ROOT / path).read_bytes()
        if text and not text.endswith(b"\n") or text.endswith(b"\n\n"):
            yield f"{path}: must end with exactly one newline"
        for number, line in enumerate(text.split(b"\n"), 1):
            if line != line.rstrip() and path.suffix != ".md":
                yield f"{path}:{number}: blanks at the end of the line"
            if b"\r" in line:
                yield f"{path}:{number}: carriage return"
            if path.suffix in (".c", ".h") and re.match(rb" {2,}\S", line) and b"*" not in line[:8]:
                yield f"{path}:{number}: indented by blanks"


def scripts():
    for path in FILES:
        first = (ROOT / path).open("rb").readline() if (ROOT / path).stat().st_size else b""
        if path.suffix == ".sh" or re.match(rb"#!.*\b(ba)?sh\b", first):
            yield path, "bash" if b"bash" in first else "sh"


def shell():
    """Shell scripts parse, and shellcheck has nothing against them."""
    for path, language in scripts():
        run = subprocess.run([language, "-n", ROOT / path], capture_output=True, text=True)
        if run.returncode:
            yield run.stderr.strip()
        if not (ROOT / path).stat().st_mode & 0o100 and (ROOT / path).read_bytes()[:2] == b"#!":
            yield f"{path}: has an interpreter line but is not executable"
    if not shutil.which("shellcheck"):
        raise CannotCheck("shellcheck is not installed")
    names = [str(path) for path, _ in scripts()]
    check = ["shellcheck", "--severity=warning", "--format=gcc", "--external-sources", *names]
    run = subprocess.run(check, capture_output=True, text=True, cwd=ROOT)
    yield from run.stdout.splitlines()


def python():
    """Python files parse, and import only the standard library, pytest and what is here."""
    local = {p.stem for p in with_suffix(".py")} | {"rig"}
    foreign = {"pytest", "openai", "anthropic", "httpx", "torch", "transformers", "tokenizers", "lmcache", "vllm", "kvtier", "yaml", "msgspec", "safetensors", "zmq"}
    for path in with_suffix(".py"):
        try:
            tree = ast.parse((ROOT / path).read_text(), str(path))
        except SyntaxError as error:
            yield f"{path}:{error.lineno}: {error.msg}"
            continue
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names | local | foreign:
                    yield f"{path}:{node.lineno}: {top} is not in the standard library"


# Where time comes with each call, or is the loop's, which is monotonic.
WITHOUT_CLOCK = ("src/router/admission", "src/router/rates", "src/router/proxy/admit.c", "src/router/proxy/admit_turn.c",
                 "src/router/proxy/gates.c", "src/router/proxy/kept.c")  # fmt: skip
CLOCK = re.compile(r"\b(kvw_clock_\w+|clock_gettime|gettimeofday|time|wall_offset_ns)\s*\(|base/clock\.h|\bwall_")


def clocks():
    """Admission reads no clock: a jump of the time of day cannot refuse or forget a request."""
    for path in with_suffix(".c", ".h"):
        if not str(path).startswith(WITHOUT_CLOCK):
            continue
        for number, line in enumerate(lines(path), 1):
            if CLOCK.search(line):
                yield f"{path}:{number}: reads a clock: {line.strip()[:80]}"


RULES = {
    "layering": layering,
    "sizes": sizes,
    "columns": columns,
    "words": words,
    "readmes": readmes,
    "keys": keys,
    "top-level": top_level,
    "links": links,
    "tests-listed": tests_listed,
    "globals": globals_rule,
    "whitespace": whitespace,
    "shell": shell,
    "python": python,
    "clocks": clocks,
}


def main():
    status = 0
    for name in sys.argv[1:] or RULES:
        try:
            faults = list(RULES[name]())
        except CannotCheck as reason:
            print(f"{name}: not checked: {reason}")
            status = status or 77
            continue
        for fault in faults:
            print(fault)
            status = 1
        print(f"{name}: {len(faults)} faults in {len(FILES)} files")
    return status


if __name__ == "__main__":
    sys.exit(main())
