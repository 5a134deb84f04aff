"""Two hundred requests as a fleet sees them: talks, documents, code, tools, token ids, repeats.

A session is a generator of (path, body) that is sent the text of each answer, since the next turn of
a talk contains it. All that is random comes from one seed.
"""

import json
import random

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

WORDS = """
router stands front several workers sends every request one that can answer soonest worker has
already seen beginning conversation keeps keys values tokens cache need not compute them again when
full block used least recently removed next wants wait small ship sails across great sea people live
island where lands once upon time there was king who had three daughters youngest so beautiful sun
itself morning weather cold afternoon wind turned they went down river see whether boats come home
""".split()
HAN = "天地玄黃宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏閏餘成歲律呂調陽雲騰致雨露結為霜金生麗水玉出崑岡"
KANA = "いろはにほへとちりぬるをわかよたれそつねならむうゐのおくやまけふこえてあさきゆめみしゑひもせす"
CODE = (
    'def {a}_{b}(self, {c}):\n\t"""Returns \\"{a}\\" of the {b}."""\n\tif {c} is None:\n'
    '\t\traise ValueError("no \\\\{c}\\n")\n\treturn self.{b}["{a}"] + {n} * len({c})\n\n'
)


def prose(rng, size):
    """About `size` bytes of words in sentences."""
    out = []
    while sum(map(len, out)) < size:
        words = [rng.choice(WORDS) for _ in range(rng.randrange(5, 15))]
        out.append(" ".join(words).capitalize() + ". ")
    return "".join(out)


def east(rng, size):
    """About `size` bytes of Chinese or Japanese signs: three bytes each in UTF-8."""
    signs = rng.choice((HAN, KANA))
    return "".join(rng.choice(signs) + ("。" if rng.random() < 0.05 else "") for _ in range(size // 3))


def code(rng, size):
    out = []
    while sum(map(len, out)) < size:
        a, b, c = (rng.choice(WORDS) for _ in range(3))
        out.append(CODE.format(a=a, b=b, c=c, n=rng.randrange(1000)))
    return "".join(out)


def tool(rng):
    fields = {rng.choice(WORDS): {"type": "string", "description": prose(rng, 60)} for _ in range(3)}
    return {
        "type": "function",
        "function": {
            "name": f"{rng.choice(WORDS)}_{rng.choice(WORDS)}",
            "description": prose(rng, 150),
            "parameters": {"type": "object", "properties": fields, "required": list(fields)[:1]},
        },
    }


def talk(rng, turns, system, text, **more):
    """A conversation; each turn contains all before it."""
    messages = [{"role": "system", "content": system}]
    for _ in range(turns):
        question = text(rng, rng.choice((40, 150, 400, 1500)))
        parts = [{"type": "text", "text": question}]
        messages.append({"role": "user", "content": rng.choice((question, parts))})
        answer = yield CHAT, {"messages": list(messages), **more}
        messages.append({"role": "assistant", "content": answer})


def review(rng, turns):
    """Questions on one source file, which is changed in its last third before the third."""
    source = code(rng, rng.randrange(2000, 5000))
    for turn in range(turns):
        if turn == 2:
            source = source[: len(source) * 2 // 3] + code(rng, 800)
        text = f"```python\n{source}```\n{prose(rng, 80)}"
        yield CHAT, {"messages": [{"role": "user", "content": text}]}


def document(rng, turns):
    """Questions behind a long text, by completion."""
    text = prose(rng, rng.randrange(4000, 14000))
    for _ in range(turns):
        yield COMPLETIONS, {"prompt": f"{text}\n\nQuestion: {prose(rng, 60)}\nAnswer:"}


def repeat(rng, turns):
    """The same again."""
    text = rng.choice((prose, prose, code, east))(rng, rng.choice((200, 1000, 3000)))
    for _ in range(turns):
        yield COMPLETIONS, {"prompt": text}


def token_ids(rng, turns):
    """A prompt that the client has turned into tokens, with another end each time."""
    shared = [rng.randrange(3, 600) for _ in range(rng.randrange(200, 3000))]
    for _ in range(turns):
        yield COMPLETIONS, {"prompt": shared + [rng.randrange(3, 600) for _ in range(50)]}


def short(rng):
    yield CHAT, {"messages": [{"role": "user", "content": prose(rng, rng.choice((20, 60)))}]}


def sessions(rng):
    """[(kind, session, requests of it)], 200 requests together."""
    systems = [prose(rng, size) for size in (300, 1200, 4000)]
    found = []
    for number in range(12):
        found.append(("talk", talk(rng, 5, systems[number % 3], prose), 5))
    for _ in range(3):
        found.append(("CJK", talk(rng, 5, east(rng, 900), east), 5))
    for number in range(4):
        tools = [tool(rng) for _ in range(4)] if number % 2 == 0 else tools
        found.append(("tools", talk(rng, 4, systems[0], prose, tools=tools, tool_choice="none"), 4))
    found += [("code", review(rng, 4), 4) for _ in range(4)]
    found += [("document", document(rng, 4), 4) for _ in range(6)]
    found += [("repeat", repeat(rng, 3), 3) for _ in range(10)]
    found += [("token ids", token_ids(rng, 4), 4) for _ in range(4)]
    found += [("short", short(rng), 1) for _ in range(23)]
    return found


def text_of(answer, stream):
    """The text of an answer, and its usage."""
    if not stream:
        got = answer.json()
        choice = got["choices"][0]
        return choice.get("text") or choice.get("message", {}).get("content") or "", got["usage"]
    text, usage = "", None
    for event in answer.events():
        if event == "[DONE]":
            continue
        got = json.loads(event)
        usage = got.get("usage") or usage
        for choice in got["choices"]:
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text, usage


class Mixed:
    """The sessions and the order of their turns."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.sessions = sessions(self.rng)
        self.order = [i for i, (_, _, count) in enumerate(self.sessions) for _ in range(count)]
        self.rng.shuffle(self.order)
        self.answers = [None] * len(self.sessions)

    def __len__(self):
        return len(self.order)

    def step(self, number, send):
        """The next request of a session; returns (kind, what send(path, body) returned apart from the text)."""
        kind, session, _ = self.sessions[number]
        path, body = session.send(self.answers[number])
        stream = self.rng.random() < 0.5
        body = {"model": "tiny", **body, "max_tokens": self.rng.randrange(1, 12), "temperature": 0}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        self.answers[number], seen = send(path, body, stream)
        return kind, seen
