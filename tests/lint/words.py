#!/usr/bin/env python3
"""words.py [--list [PATH...] | --update] - plain English in comments, messages and documents.

The old comments of this tree were written in a private dialect: "whoever told somebody of it" where
"the feed that reported it" was meant. A reader who has never seen the project should understand a
sentence at first sight, so a comment names the thread, function or caller that acts, and uses the
field's own words: report, publish, send, source, coverage, lower tier.

What a machine can see of that is a list of words. This rule counts them in the comments and strings of
C, Python and shell, and in Markdown outside code, and compares each file with the number that
words_allowed.txt grants it: the words that were there when the rule came. A file that is not listed has
none. More than that is a fault. After removing some, or after moving a file, run --update: it writes
the numbers of now and refuses when their sum has risen.

  --list [PATH...]  prints every word with file and line, below the paths if any are given
  --update          writes words_allowed.txt from what is there now

What the rule cannot judge and does not try: "whose", which is plain English of a thing as well as of a
person, and any bad sentence made of good words.
"""

import pathlib
import re
import sys

from lint import FILES, ROOT

ALLOWED = ROOT / "tests/lint/words_allowed.txt"
HEADER = "# Words of the private dialect that a file may still hold; written by words.py --update.\n"

# Not actors: a comment names what acts. Not verbs of the field: report, publish, send, notify.
WORDS = (
    "who", "whom", "whoever", "somebody", "someone", "nobody", "anybody", "anyone",
    "tell", "tells", "told", "telling", "forsake", "forsakes",
    "anew", "beside", "truth", "teller", "sight", "sureness", "tiered",
)  # fmt: skip
# Plain English, or words of others.
EXCEPTIONS = (
    r"\b(?:tell|tells|told|telling)(?: \w+){0,2} apart\b",  # the idiom: to distinguish
    r"\btruth values?\b",  # true or false
    r"\btell me\b|\btell us\b",  # prompts of the kind that users write
    r"\btiered[ -](?:KV )?(?:caches?|storage)\b",  # the field's own names of a cache or service with tiers
    r"\bking who had\b|\bpeople who live\b",  # a tale, as prompts of tests and words of a made model
    r"model `nobody`",  # in vLLM's recorded answer to a request for that model
)
NOT_READ = ("tests/lint/words.py",)  # it names the words

WORD = re.compile(r"\b(?:%s)\b" % "|".join(WORDS), re.I)
EXCEPTION = re.compile("|".join(EXCEPTIONS), re.I)
ONE_WORD = re.compile(r"([\"'])\s*\w+\s*\1")
C_PROSE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|(?P<code>'(?:\\.|[^'\\\n])+')", re.S
)
PYTHON_PROSE = re.compile(
    r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|#[^\n]*", re.S
)
SHELL_PROSE = re.compile(r"(?:^|(?<=\s))#[^\n]*|\"(?:\\.|[^\"\\])*\"|'[^']*'", re.S)
MARKDOWN_CODE = re.compile(r"^\s*```.*?^\s*```|`[^`\n]*`", re.S | re.M)
PROSE = {
    ".c": C_PROSE, ".h": C_PROSE, ".inc": C_PROSE, ".def": C_PROSE,
    ".py": PYTHON_PROSE, ".sh": SHELL_PROSE,
}  # fmt: skip


def blank(match):
    """The same length and lines, without words."""
    return re.sub(r"[^\n]", " ", match.group())


def prose(path, text):
    """Yields (offset, text) of what a reader reads, escapes blanked."""
    if path.suffix == ".md":
        yield 0, MARKDOWN_CODE.sub(blank, text)
        return
    for match in PROSE[path.suffix].finditer(text):
        if not match.groupdict().get("code"):
            part = re.sub(r"\\.", "  ", match.group())
            if not ONE_WORD.fullmatch(part):  # a word in a list of words, not a sentence
                yield match.start(), part


def offences(path):
    """Yields (line number, word) of one file."""
    text = (ROOT / path).read_text(errors="replace")
    if not WORD.search(text):
        return
    for start, part in prose(path, text):
        if WORD.search(part):
            for match in WORD.finditer(EXCEPTION.sub(blank, part)):
                yield text.count("\n", 0, start + match.start()) + 1, match.group()


def counts(paths=()):
    """Offences by file, of all files or of those below the paths."""
    found = {}
    for path in FILES:
        name = str(path)
        if path.suffix not in PROSE and path.suffix != ".md" or name in NOT_READ:
            continue
        if "corpus" in path.parts or paths and not name.startswith(tuple(paths)):
            continue
        items = list(offences(path))
        if items:
            found[name] = items
    return found


def allowed():
    rows = (line.split() for line in ALLOWED.read_text().splitlines() if not line.startswith("#"))
    return {name: int(number) for number, name in rows}


def update(found):
    """Writes the numbers of now. A file that was moved keeps its words; no sum may rise."""
    before, now = sum(allowed().values()) if ALLOWED.exists() else None, sum(map(len, found.values()))
    if before is not None and now > before:
        print(f"words: {now} words of the old dialect, {before} are allowed: reword, then update")
        return 1
    ALLOWED.write_text(HEADER + "".join(f"{len(i)} {name}\n" for name, i in sorted(found.items())))
    print(f"words: {now} are allowed")
    return 0


def main():
    if sys.argv[1:2] == ["--list"]:
        for name, items in counts(sys.argv[2:]).items():
            for number, word in items:
                print(f"{name}:{number}: {word}")
        return 0
    found = counts()
    if sys.argv[1:] == ["--update"]:
        return update(found)
    limits, status = allowed(), 0
    for name, items in found.items():
        if len(items) > limits.get(name, 0):
            where = ", ".join(f"{word} ({number})" for number, word in items[:12])
            print(f"{name}: {len(items)} words of the old dialect, {limits.get(name, 0)} allowed: {where}")
            status = 1
    total = sum(map(len, found.values()))
    if status:
        print("name what acts, in the field's own words; after moving a file run words.py --update")
    print(f"words: {total} left in {len(found)} files, {sum(limits.values())} allowed")
    return status


if __name__ == "__main__":
    sys.exit(main())
