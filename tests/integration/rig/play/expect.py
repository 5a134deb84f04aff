"""Expectations: a subject of a message, a relation and a value, such as `header etag is "x"` or `json error.code is 404`.

Each says on failure what was expected and what came. A relation that a subject cannot have is an error of the file.
"""

import json

from rig.play.values import MISSING, CaseError, Json, Regex, Text, look, path_steps, readable


class Failure(Exception):
    """Something that a file expects did not come true. The player adds the step and, of a line below it, the line."""

    def __init__(self, expected, came):
        super().__init__(expected)
        self.expected, self.came = expected, came
        self.step, self.line = None, 0


# Subjects that take a name, besides json, which may. What a subject gives is bytes, or for json any value.
NAMED = ("header", "interim header", "trailer")
RELATIONS = ("is not", "is", "matches", "contains", "lacks", "at least", "at most", "members", "as")
REQUEST = ("header", "headers", "body", "json", "target", "method", "trailer")
RESPONSE = ("header", "headers", "body", "json", "reason", "version", "framing", "events", "interim", "interim header", "trailer")
RECORD = ("json",)


def joined(values):
    return " | ".join(values).encode("latin-1", "replace") if values else MISSING


class Message:
    """What came, as expectations look at it: a rig Response, a rig Exchange, or a record of JSON."""

    def __init__(self, found, shown):
        self.found, self.shown = found, shown

    def get(self, subject, name):
        found = self.found
        if subject == "header":
            return joined(found.headers.all(name))
        if subject == "headers":
            return "".join(f"{key}: {value}\n" for key, value in found.headers).encode("latin-1")
        if subject == "trailer":
            return joined([value for key, value in found.trailers if key.lower() == name.lower()])
        if subject == "interim":
            return joined([str(status) for status, _ in found.interim])
        if subject == "interim header":
            return joined([value for _, headers in found.interim for value in headers.all(name)])
        if subject == "events":
            return joined([event.encode().decode("latin-1") for event in found.events()])
        value = getattr(found, subject)
        return value if isinstance(value, bytes) else str(value).encode("latin-1")

    def json(self):
        if isinstance(self.found, (dict, list)):
            return self.found
        try:
            return json.loads(self.found.body)
        except ValueError:
            raise Failure("a body of JSON", self.shown()) from None


class Expectation:
    """One line under a step that receives."""

    def __init__(self, text, line, subjects):
        self.text, self.line = text, line
        self.absent = text.startswith("no ")
        rest = text[3:] if self.absent else text
        names = sorted(subjects, key=len, reverse=True)
        self.subject = next((s for s in names if rest == s or rest.startswith(s + " ")), None)
        if self.subject is None:
            raise CaseError(line, f"unknown subject: {text}; known here: {', '.join(subjects)}")
        rest = rest[len(self.subject) :].strip()
        self.name = ""
        if self.subject in NAMED or (self.subject == "json" and not self._relation(rest)):
            self.name, _, rest = rest.partition(" ")
            if not self.name:
                raise CaseError(line, f"{self.subject} of what? {text}")
        rest = rest.strip()
        self.path = path_steps(self.name, line) if self.subject == "json" else None
        if self.absent:
            if rest or self.subject not in ("header", "trailer", "json", "interim", "interim header"):
                raise CaseError(line, f"`no` stands before a header, trailer, interim or json, alone: {text}")
            return
        self.relation = self._relation(rest)
        if self.relation is None:
            raise CaseError(line, f"unknown relation: {text}; known: {', '.join(RELATIONS)}")
        self.value = self._value(rest[len(self.relation) :].strip())

    @staticmethod
    def _relation(rest):
        return next((r for r in RELATIONS if rest == r or rest.startswith(r + " ")), None)

    def _value(self, text):
        relation, line = self.relation, self.line
        if relation == "as":
            if not text.isidentifier():
                raise CaseError(line, f"as wants a variable's name, found: {text}")
            return text
        if relation == "matches":
            return Regex(text, line)
        if relation in ("at least", "at most"):
            return Json(text, line)
        if relation == "members":
            if self.subject != "json":
                raise CaseError(line, "only json has members")
            return text.split()
        if relation in ("is", "is not") and self.subject == "json":
            return Json(text, line)
        if not text and relation != "is":
            raise CaseError(line, f"`{relation}` wants a value: {self.text}")
        return Text(text, line)

    def check(self, message, names):
        """Raises Failure, or adds the variable."""
        if self.subject == "json":
            value = look(message.json(), self.path, names)
            came = value if value is MISSING or isinstance(value, str) else json.dumps(value)
            data = came if came is MISSING else came.encode()
        else:
            value = data = message.get(self.subject, names.fill(self.name))
        if self.absent:
            good = data is MISSING
        elif data is MISSING:
            good = self.relation == "lacks" or self.relation == "is not"
        elif self.relation == "as":
            names[self.value] = data.decode("utf-8" if self.subject == "json" else "latin-1")
            good = True
        else:
            good = self._holds(value, data, names)
        if not good:
            about = "nothing" if data is MISSING else readable(data)
            raise Failure(names.fill(self.text), f"{about}\nin:\n{message.shown()}")

    def _holds(self, value, data, names):
        relation = self.relation
        if relation == "matches":
            return self.value.compiled(names, self.line).search(data) is not None
        if relation == "members":
            return isinstance(value, dict) and list(value) == self.value
        if relation in ("at least", "at most"):
            number, bound = numeric(data), float(self.value.value(names, self.line))
            return number is not None and (number >= bound if relation == "at least" else number <= bound)
        if isinstance(self.value, Json):
            same = value == self.value.value(names, self.line)
            return same == (relation == "is")
        wanted = self.value.bytes(names)
        if relation in ("contains", "lacks"):
            return (wanted in data) == (relation == "contains")
        return (data == wanted) == (relation == "is")


def numeric(data):
    try:
        return float(data)
    except ValueError:
        return None
