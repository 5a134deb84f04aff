#!/usr/bin/env python3
"""words.py [PATH...] - plain English in comments, messages and documents.

The old comments of this tree were written in a private dialect: "whoever told somebody of it" where
"the feed that reported it" was meant. A reader who has never seen the project should understand a
sentence at first sight, so a comment names the thread, function or caller that acts, and uses the
field's own words: report, publish, send, source, coverage, lower tier.

What a machine can see of that is a list of words. This rule prints each one, with file and line, in the
comments and strings of C, Python and shell and in Markdown outside code, below the paths if any are
given. One is a fault.

A comment of C that begins with a word that stands for an absent subject is a fault, too: "It waits" (what
does?), "Of a shared tier", "What a worker holds", "Whether it may", "One that is full". The noun comes first:
"The request waits". This counts for the folders of `NAMED`.

What the rule cannot judge and does not try: "whose", which is plain English of a thing as well as of a
person, and any bad sentence made of good words.
"""

import pathlib
import re
import sys

from lint import FILES, ROOT

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
# Folders whose comments begin with their subject.
NAMED = ("src/", "routing/", "include/", "config/", "cache/")
NOT_READ = ("tests/lint/words.py",)  # it names the words

WORD = re.compile(r"\b(?:%s)\b" % "|".join(WORDS), re.I)
EXCEPTION = re.compile("|".join(EXCEPTIONS), re.I)
ONE_WORD = re.compile(r"([\"'])\s*\w+\s*\1")
# "Whether a worker sleeps", "One worker" and "One of the sockets" have a subject.
NO_SUBJECT = re.compile(
    r"/\*[\s*]*((?:Of|What|It)\b|Whether (?:it|they|what|one(?! of))\b"
    r"|One (?:that|which|whose|is|has|was|may|can|more|with|in|by|for|from|to|on|after|behind)\b)"
)
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


def beginnings(path):
    """Yields (line number, words) of comments of one file that begin without a subject."""
    if path.suffix not in (".c", ".h", ".inc", ".def"):
        return
    if not str(path).startswith(NAMED):
        return
    text = (ROOT / path).read_text(errors="replace")
    for comment in C_PROSE.finditer(text):
        match = NO_SUBJECT.match(comment.group())
        if match:
            yield text.count("\n", 0, comment.start()) + 1, f"begins with `{match.group(1)}`"


def is_read(path, below):
    name = str(path)
    if path.suffix not in PROSE and path.suffix != ".md" or name in NOT_READ:
        return False
    return "corpus" not in path.parts and (not below or name.startswith(below))


def main():
    below = tuple(sys.argv[1:])
    found = [(p, *offence) for p in FILES if is_read(p, below) for offence in offences(p)]
    nameless = [(p, *fault) for p in FILES if is_read(p, below) for fault in beginnings(p)]
    for path, number, word in found + nameless:
        print(f"{path}:{number}: {word}")
    if found:
        print("words of the old dialect: name what acts, in the field's own words")
    if nameless:
        print("comments without a subject: begin with the noun")
    return 1 if found or nameless else 0


if __name__ == "__main__":
    sys.exit(main())
