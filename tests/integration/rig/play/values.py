"""Values of case files: text with ${variables}, quoted bytes with escapes, JSON, paths into JSON, bytes for readers.

A variable that a table of the file defines is text of the file, so its escapes count inside quotes; what was captured
from the wire is taken as it came.
"""

import json
import re

VARIABLE = re.compile(r"\$\{([\w.]+)\}")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\*(\d+))?(?=\s|$)')
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.S)
SIMPLE = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"\\": b"\\", b'"': b'"'}
STEP = re.compile(r"([^.\[\]]+)|\[([\w]+)=([^\]]*)\]")


class CaseError(Exception):
    """What is wrong with the text of a file, with its line."""

    def __init__(self, line, message):
        super().__init__(message)
        self.line = line


class Names(dict):
    """Variables of a case that is played. `tables`: names whose values are text of the file."""

    def __init__(self, *args):
        super().__init__(*args)
        self.tables = set()

    def fill(self, text, quote=None):
        """The text with its variables replaced; each value that came from the wire passes through `quote` first."""

        def value(match):
            name = match.group(1)
            found = str(self[name])
            return found if quote is None or name in self.tables else quote(found)

        return VARIABLE.sub(value, text)

    def fill_known(self, text):
        """The text with those of its variables replaced that there are."""
        return VARIABLE.sub(lambda match: str(self.get(match.group(1), match.group())), text)


def unescape(text):
    """The bytes that an escaped text of a file stands for."""

    def one(match):
        code = match.group(1)
        return bytes([int(code[1:], 16)]) if code[:1] == b"x" and len(code) == 3 else SIMPLE[code]

    return ESCAPE.sub(one, text.encode())


class Data:
    """Bytes as a file writes them: "text with \\r\\n and \\x00"*3 "more"."""

    def __init__(self, text, line):
        self.items = []
        at = 0
        while at < len(text):
            match = QUOTED.match(text, at)
            if match is None:
                raise CaseError(line, f'expected bytes in quotes, such as "a\\r\\n" or "a"*100, found: {text[at:]}')
            for escape in re.findall(r"\\(.)", match.group(1)):
                if escape != "x" and escape.encode() not in SIMPLE:
                    raise CaseError(line, f'unknown escape \\{escape}; known: \\r \\n \\t \\0 \\\\ \\" \\xHH')
            if re.search(r"(?<!\\)(?:\\\\)*\\x(?![0-9a-fA-F]{2})", match.group(1)):
                raise CaseError(line, "\\x wants two hexadecimal digits")
            self.items.append((match.group(1), int(match.group(2) or 1)))
            at = match.end()
            while text[at : at + 1].isspace():
                at += 1
        if not self.items:
            raise CaseError(line, 'expected bytes in quotes, such as "a\\r\\n"')

    def bytes(self, names):
        quote = lambda value: value.replace("\\", "\\\\")
        return b"".join(unescape(names.fill(text, quote)) * times for text, times in self.items)


class Text:
    """The rest of a line as it stands, or bytes in quotes."""

    def __init__(self, text, line):
        self.text = text
        self.data = Data(text, line) if text.startswith('"') else None

    def bytes(self, names):
        return self.data.bytes(names) if self.data else names.fill(self.text).encode()


class Json:
    """A JSON value."""

    def __init__(self, text, line):
        self.text = text
        self.value(Names.fromkeys(VARIABLE.findall(text), "0"), line)

    def value(self, names, line=0):
        quote = lambda value: json.dumps(value)[1:-1]
        try:
            return json.loads(names.fill(self.text, quote))
        except ValueError as error:
            raise CaseError(line, f"expected JSON, found: {self.text} ({error})") from None


class Regex:
    """/expression/, searched for in bytes."""

    def __init__(self, text, line):
        if len(text) < 2 or text[0] != "/" or text[-1] != "/":
            raise CaseError(line, f"expected /a regular expression/, found: {text}")
        self.text = text[1:-1]
        self.compiled(Names.fromkeys(VARIABLE.findall(text), "0"), line)

    def compiled(self, names, line=0):
        try:
            return re.compile(names.fill(self.text, re.escape).encode(), re.S)
        except re.error as error:
            raise CaseError(line, f"/{self.text}/: {error}") from None


def path_steps(text, line):
    """error.message, choices.0.text, way[what=attempt].worker -> keys, indexes and (member, value) to look for."""
    steps, at = [], 0
    while at < len(text):
        match = STEP.match(text, at)
        if match is None or match.end() == at:
            raise CaseError(line, f"expected a path such as error.message or way[what=attempt].worker, found: {text}")
        steps.append(match.group(1) if match.group(1) is not None else (match.group(2), match.group(3)))
        at = match.end()
        if text[at : at + 1] == ".":
            at += 1
    return steps


MISSING = object()


def look(value, steps, names):
    """What stands there in a parsed JSON value, or MISSING."""
    for step in steps:
        if isinstance(step, tuple):
            wanted = names.fill(step[1])
            found = [v for v in value if isinstance(v, dict) and str(v.get(step[0])) == wanted] if isinstance(value, list) else []
            value = found[0] if found else MISSING
        elif isinstance(value, dict):
            value = value.get(names.fill(step), MISSING)
        elif isinstance(value, list) and re.fullmatch(r"-?\d+", step) and -len(value) <= int(step) < len(value):
            value = value[int(step)]
        else:
            value = MISSING
        if value is MISSING:
            break
    return value


def readable(data, most=600):
    """Bytes as a file would write them, a line of theirs on a line, shortened in the middle."""
    if len(data) > most:
        half = most // 2
        return f"{readable(data[:half])}\n... {len(data) - most} bytes ...\n{readable(data[-half:])}"
    shown = {13: "\\r", 10: "\\n", 9: "\\t", 0: "\\0", 92: "\\\\", 34: '\\"'}
    lines, line = [], ""
    for byte in data:
        line += shown.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}")
        if byte == 10:
            lines.append(f'"{line}"')
            line = ""
    if line or not lines:
        lines.append(f'"{line}"')
    return "\n".join(lines)
