"""Requests of mixed kinds and what happens to the engine meanwhile, all from one seed, for differential.py."""

import random
from dataclasses import dataclass, field, replace

import pictures

LEAST_TOKEN, END_TOKEN = 10, 600  # ids of prompts; the model has 630
ADAPTERS = ("one", "two")
SALTS = ("a", "b")
KINDS = {  # share of each
    "fresh": 10, "shared": 18, "again": 25, "longer": 14, "talk": 14, "salted": 8, "new salt": 3, "long answer": 6,
    "echo": 4, "leaves": 8, "peeked": 2,
}  # fmt: skip
OTHER = "other image"  # of mixtures with images: the tokens of a prompt from before, and not all of its images
EVENTS = (  # of one cycle, each after or within a round of requests
    "forget", "kill -9", "pause", "adapter", "forget", "restart", "reset running", "adapter", "sleep", "reload", "swap",
)  # fmt: skip


@dataclass
class Asked:
    """One request. prompt: its token ids; of a talk they begin with `base`'s prompt and answer, which are put there
    once that answer is known."""

    number: int
    kind: str
    weights: int  # version of the model's files
    prompt: list
    tokens: int  # of the answer
    base: "Asked | None" = None
    adapter: str | None = None
    adapter_version: int = 0
    salt: str | None = None
    stream: bool = False
    leave: float | None = None  # the client goes away after so many seconds
    images: tuple = ()  # (place of its first token, number) of each
    like: "Asked | None" = None  # of the same tokens, with other images


@dataclass
class Round:
    requests: list
    event: str
    files: dict = field(default_factory=dict)  # versions behind the names after the event
    probes: list = field(default_factory=list)  # (request just before the event, the same of the files after it)


class Mixture:
    """cycles: how often all events come; most: tokens of a prompt and its answer; images: some prompts have some."""

    def __init__(self, count, seed, most, cycles=1, adapters=True, events=EVENTS, images=False):
        self.rng, self.most, self.adapters, self.images = random.Random(seed), most, adapters, images
        self.kinds = {**KINDS, OTHER: 15} if images else KINDS
        self.made, self.replaced = [], False  # the first adapter was, after the round before
        self.probes, self.probe_rng = [], random.Random(seed)
        self.systems = [self._new(self.rng.randrange(100, most // 2)) for _ in range(5)]
        self.versions = {"model": 0, **dict.fromkeys(ADAPTERS, 0)}
        self.rounds = []
        steps = [event for _ in range(cycles) for event in events if adapters or event != "adapter"]
        for index, event in enumerate(steps):
            size = count * (index + 1) // len(steps) - count * index // len(steps)
            requests = [self._request() for _ in range(size)]
            self.replaced = event == "adapter"
            if event in ("reload", "swap"):
                self.versions["model"] ^= 1
            elif event == "adapter":
                before = [self._probe() for _ in range(3)]
                self.versions[ADAPTERS[0]] ^= 1
                probes = [(a, replace(a, adapter_version=self.versions[ADAPTERS[0]])) for a in before]
                self.probes += probes
            self.rounds.append(Round(requests, event, dict(self.versions), probes if event == "adapter" else []))

    @property
    def requests(self):
        return self.made + [a for pair in self.probes for a in pair]

    def _tokens(self, count):
        return [self.rng.randrange(LEAST_TOKEN, END_TOKEN) for _ in range(count)]

    def _new(self, count):
        """(tokens, images); so many tokens, and those of one or two images, or of none."""
        tokens, images = self._tokens(count), []
        if self.images and self.rng.random() < 0.7:
            places = sorted(self.rng.randrange(count + 1) for _ in range(self.rng.randrange(1, 3)))
            for before, place in enumerate(places):
                at = place + before * pictures.TOKENS
                tokens[at:at] = [pictures.TOKEN] * pictures.TOKENS
                images.append((at, self.rng.randrange(20)))
        return tokens, tuple(images)

    def _beginning(self, old):
        """(tokens, images) of the first tokens of a prompt; no image is cut."""
        end = self.rng.randrange(1, len(old.prompt) + 1)
        whole = tuple((place, number) for place, number in old.images if place + pictures.TOKENS <= end)
        cut = [place for place, _ in old.images if place < end < place + pictures.TOKENS]
        return old.prompt[: cut[0] if cut else end], whole

    def _probe(self):
        """Few tokens, so that the engine has its blocks still when the files have changed."""
        prompt = [self.probe_rng.randrange(LEAST_TOKEN, END_TOKEN) for _ in range(400)]
        version = self.versions[ADAPTERS[0]]
        return Asked(-1, "probe", self.versions["model"], prompt, 24, adapter=ADAPTERS[0], adapter_version=version)

    def _request(self):
        rng = self.rng
        kind = rng.choices(list(self.kinds), self.kinds.values())[0]
        one = Asked(len(self.made), kind, self.versions["model"], [], 8)
        one.stream = rng.random() < 0.3
        one.tokens = 40 if rng.random() < 0.15 else 8
        if self.adapters and rng.random() < 0.3:
            one.adapter = rng.choice(ADAPTERS)
        if self.adapters and self.replaced and rng.random() < 0.7:  # mostly what the old one was asked
            one.adapter = ADAPTERS[0]
        if one.adapter is not None:
            one.adapter_version = self.versions[one.adapter]
        self._fill(one)
        self.made.append(one)
        return one

    def _fill(self, one):
        rng, kind = self.rng, one.kind
        old = self._old(kind in ("talk", OTHER), one.adapter if self.replaced else None)
        length = min(int(self.most * rng.random()) + 1, self.most - 120)
        if rng.random() < 0.25:
            length = max(32, length // 32 * 32)
        one.prompt, one.images = self._new(length)
        if kind == "shared":
            prompt, one.images = rng.choice(self.systems)
            one.prompt = prompt + self._tokens(rng.randrange(1, 120))
        elif kind == "echo":
            one.images = ()
            one.prompt = self._tokens(rng.randrange(4, 12)) * rng.randrange(8, 40)
            one.tokens = 24
        elif kind == "long answer":
            one.tokens = 80
        elif kind == "leaves":
            one.leave, one.stream, one.tokens = rng.choice((0.001, 0.02, rng.random() / 4)), True, 100
        if old is not None:
            if kind in ("again", "salted", "new salt", "peeked", "long answer"):
                one.prompt, one.images = list(old.prompt), old.images
            elif kind == "longer":
                prompt, one.images = self._beginning(old)
                one.prompt = prompt + self._tokens(rng.randrange(1, 200))
            elif kind == "talk":
                one.base, one.prompt, one.images = old, self._tokens(rng.randrange(1, 60)), old.images
            elif kind == OTHER and old.images:
                one.prompt, one.like, one.tokens = list(old.prompt), old, old.tokens
                changed = rng.randrange(len(old.images))  # this one, and those behind it perhaps
                one.images = tuple(
                    (place, number + 20 if n == changed or n > changed and rng.random() < 0.5 else number)
                    for n, (place, number) in enumerate(old.images)
                )
            if one.base or one.like:
                one.adapter, one.adapter_version, one.salt = old.adapter, old.adapter_version, old.salt
        if kind == "salted":
            one.salt = rng.choice(SALTS)
        elif kind == "new salt":
            one.salt = f"new{one.number}"

    def _old(self, same, adapter=None):
        """A request from before, of the same files if its answer is to be used, and of this adapter if there is one."""
        some = [
            a for a in self.made[-400:] if a.kind not in ("leaves", "talk") and len(a.prompt) < self.most - 300
            and (not same or self._is_current(a))
        ]  # fmt: skip
        some = [a for a in some if adapter is not None and a.adapter == adapter] or some
        return self.rng.choice(some) if some else None

    def _is_current(self, a):
        return a.weights == self.versions["model"] and (
            a.adapter is None or a.adapter_version == self.versions[a.adapter])  # fmt: skip
