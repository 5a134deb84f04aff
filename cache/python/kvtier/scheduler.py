"""The scheduler's side: finds the tokens of a request that need not be computed, and the chunks that are new.

One thread, the engine core's. The plan sends a question to the ranks when a request arrives and reads the answer when
the engine wants to schedule the request. Without an answer by then, the engine asks again in the next step: the plan
never waits while requests run. If none runs, it waits for an answer, all of a step's waits together no longer than
`step_wait_s`, since the engine would take empty steps instead.

Chunks computed before a reset of the cache (new weights) are neither loaded nor stored after it: loads and stores carry
the number of resets before them, and requests that began before a reset store nothing until they start again. Weights
may also change under blocks that the engine has cached itself; until the engine has forgotten those, nothing is stored
or loaded, since tokens computed after them belong to neither the old nor the new weights.
"""

import secrets
import time
from array import array
from dataclasses import dataclass, field

from . import apart, chunks, media
from .adapters import OUTDATED, Adapters
from .ask import NO_TENANT
from .blending import ASK_FRAGMENTS
from .groups import ENDS, WHOLE
from .library import tenant_of
from .work import Load, LoadChunk, Store

NO_CHUNK = bytes(32)
ANSWER_HOLDS_S = 2.0  # a request that cannot be scheduled yet is not asked about again before this time
NEVER = 1 << 62  # a number of computed tokens that no request reaches
PREFILL_TOKENS = 16  # least tokens of a step that shows how fast the engine computes prompts
PREFILL_SHARE = 0.9  # least share of such a step's tokens that belong to prompts


@dataclass
class Track:
    """The state of one request."""

    request: object
    adapter: object = None  # adapters.Adapter; None: the model itself
    tenant: bytes = NO_TENANT  # hash of its cache salt
    private: bool = False  # its hashes cover more than tokens and adapter: events omit its tokens
    question: int | None = None
    wanted: tuple = (None, ())  # the key of the last search for chunks, and its chunks
    asked: list = field(default_factory=list)  # chunks of the question
    answer: tuple | None = None  # chunks found, tier of the last
    answered_at: float = 0.0
    counted: bool = False
    computed: int = 0  # tokens that the engine had itself
    found: list = field(default_factory=list)  # chunks that can be loaded
    block_ids: list = field(default_factory=list)
    stored: int = 0  # whole chunks before this one are cached or being stored
    tail_stored: bool = False
    due: int = 0  # number of computed tokens from which on a chunk may be complete
    storing: bool = False  # the ranks got a store of its blocks, since it began or began again
    loading: bool = False  # ranks copy into its blocks, and the engine does not know yet that all have finished
    source: int = 255
    old: bool = False  # began before a reset
    refused: bool = False  # a load of it failed completely: the engine computes it
    names: list = field(default_factory=list)  # of its whole chunks, for LMCache's controller
    asking: object = None  # blending.Asking, if it uses fragments
    images: int = 0  # number of images checked
    own: tuple = (None, b"")  # (block from which on its chunks have names of this process, the bytes mixed in)
    most: int | None = None  # number of blocks that may be cached; None: all

    @property
    def mixed(self):
        """Bytes mixed into the names of its chunks; None: its adapter has no name yet, or none any more."""
        return b"" if self.adapter is None else self.adapter.digest


class Plan:
    """Requests' states and the contents of the next step's metadata."""

    def __init__(
        self, asker, settings, block_size, hashes_are_whole, report_tokens=False, local_blocks=None, namer=None,
        adapters=None, groups=None, blender=None, images=True, unnamed=lambda: None,
    ):  # fmt: skip
        """hashes_are_whole: the engine's block hashes have 32 bytes. report_tokens: stores carry token ids.
        local_blocks: a guess of how many of a request's blocks the engine has itself. namer: a controller.Namer or
        None. adapters: adapters.Adapters. groups: groups.Tables of an engine with several groups of KV caches, else
        None. blender: blending.Blender or None. images: from an image on prompts are cached, too. unnamed(): a prompt
        has an image without a name by content."""
        self.blender = blender
        self.namer = namer
        self.asker = asker
        self.settings = settings
        self.block_size = block_size
        self.per_chunk = chunks.blocks_per_chunk(block_size, settings.chunk_tokens)
        self.usable = hashes_are_whole
        self.report_tokens = report_tokens
        self.local_blocks = local_blocks or (lambda request: 0)
        self.adapters = adapters or Adapters()
        self.images, self.unnamed = images, unnamed
        self.own = secrets.token_bytes(32)  # mixed into names that no other process is to make
        self.groups = groups
        self.lead = groups.groups.lead if groups is not None else 0  # the group whose blocks are in Track.block_ids
        self.tracks = {}
        self.loads = []
        self.counts = {}
        self.wait_left_s = settings.step_wait_s
        self.prefill_tokens = 0  # prompt tokens of the last step, if it shows the engine's speed
        self.idle = True  # the last step computes nothing
        self.computed = False  # some block was computed or loaded since the engine's own cache was empty
        self.stale = False  # the weights changed since
        self.running = set()  # requests of the last step that have not finished
        self.ended = set()  # ended requests whose blocks the engine keeps until all ranks have copied them
        self.taken = set()  # ended requests whose blocks others get although ranks may be copying them

    # --- lookup ---

    def arrived(self, request):
        """Called for a new request: asks about it, so that the answer is there when it is scheduled."""
        if self.blender is not None:
            self.blender.leave_domain(request)
        if not self.usable or self.stale:
            return
        tenant = tenant_of(getattr(request, "cache_salt", None))
        asking = self.blender.look(request, self._adapter(request)) if self.blender is not None else None
        track = self._track(request)
        if asking is not None:
            track.asking, track.tenant = asking, tenant  # that of its own salt, which its hashes may not have
            if asking.blended:
                self._ask_fragments(track)
                return
        computed = self.local_blocks(request) * self.block_size
        wanted = self._wanted(track, computed)
        if wanted:
            self._ask(track, wanted)

    def matched(self, request, computed):
        """(tokens beyond `computed` that can be loaded, or None: ask again; whether there are any)."""
        self._begin_again(self.tracks.get(request.request_id))
        if not self.usable or self.stale:
            return 0, False
        track = self._track(request)
        if track.asking is not None and track.asking.blended:
            return self._matched_fragments(track, computed)
        wanted = self._wanted(track, computed) if not track.refused else []
        if not wanted:
            return 0, False
        count = self._count_found(track, wanted, computed)
        if count is None:
            return None, False
        track.computed, track.found = computed, wanted[:count]
        if count == 0:
            return 0, False
        last = wanted[count - 1]
        tokens = min(last.first + last.count, self._most(request)) * self.block_size - computed
        return (tokens, True) if tokens >= self._least() else (0, False)

    @staticmethod
    def _begin_again(track):
        """The engine asks about requests without blocks. A request that had some has lost them: ranks learn that no
        later than in this step, and drop its waiting stores. So it stores all of its chunks again."""
        if track is not None:
            track.storing = track.tail_stored = False
            track.stored = track.due = 0
            if track.asking is not None:
                track.asking.stored = False

    def _ask_fragments(self, track):
        asking = track.asking
        if asking.question is not None:
            self.asker.forget(asking.question)
        asking.count = None
        names = [piece.name for piece in asking.pieces]
        asking.question = self.asker.ask(names, track.tenant, ASK_FRAGMENTS)
        if asking.question is None:
            asking.count = 0

    def _matched_fragments(self, track, computed):
        """Like matched, for a request that is blended: a run of fragments, no exact chunks."""
        asking = track.asking
        if asking.count is None:
            if asking.question is None:
                self._ask_fragments(track)
            answer = (0, 255) if asking.count == 0 else self._await(asking.question)
            if answer is None:
                return None, False
            asking.question, asking.count, track.source = None, min(answer[0], len(asking.pieces)), answer[1]
        if track.refused:
            return 0, False
        track.computed = computed
        run = self.blender.run(asking, self._most(track.request) * self.block_size)
        tokens = run - computed
        return (tokens, True) if run >= self.blender.how.least and tokens >= self._least() else (0, False)

    def _await(self, question):
        """The request's answer, after a wait as long as this step may wait; None: not yet."""
        began = time.monotonic()
        answer = self.asker.answer(question, 0.0 if self.running else max(0.0, self.wait_left_s))
        self.wait_left_s -= time.monotonic() - began
        return answer

    def _allocated_fragments(self, track, block_ids, tokens):
        request, begin = track.request, track.computed
        load = self.blender.load(
            request.request_id, track.asking, begin, begin + tokens, list(block_ids), self.asker.epoch, track.tenant)
        if load is None:
            first = begin // self.block_size
            nothing = self._nothing(block_ids[first : first + tokens // self.block_size])
            load = Load(request.request_id, [nothing], self.asker.epoch)
        else:
            self.count("blended_tokens", tokens)
        self.loads.append(load)
        self.computed = True
        track.block_ids, track.asking.cold, track.asking.count = list(block_ids), False, None

    def _most(self, request):
        """Number of blocks that may be loaded: the last token is always computed."""
        return (request.num_tokens - 1) // self.block_size

    def _least(self):
        return max(self.settings.min_retrieve_tokens, 1)

    def _wanted(self, track, computed):
        """Chunks to ask about: those that the engine lacks completely or in part."""
        request, most = track.request, self._most(track.request)
        if track.mixed is None or most * self.block_size - computed < self._least():
            return []
        first, blocks = computed // self.block_size // self.per_chunk, len(request.block_hashes)
        if track.wanted[0] != (first, blocks, most):
            found = self._chunks(track, blocks, self.settings.save_unfull_chunk, first)
            # windows are there only at the ends of chunks
            usable = [c for c in found if (c.first if self.groups is None else c.first + c.count - 1) < most]
            track.wanted = (first, blocks, most), usable
        return track.wanted[1]

    def _chunks(self, track, blocks, tail=False, skip=0):
        mixed = track.mixed  # another thread may remove it at any time
        if mixed is None:
            return []
        self._look_at_images(track)
        if track.most is not None and track.most < blocks:
            blocks, tail = track.most, False
        return chunks.chunks_of(
            track.request.block_hashes, self.block_size, self.per_chunk, blocks, mixed, tail, skip, track.own
        )  # fmt: skip

    def _track(self, request):
        track = self.tracks.get(request.request_id)
        if track is None:
            track = self.tracks[request.request_id] = Track(request)
            track.adapter = self._adapter(request)
            track.tenant = tenant_of(getattr(request, "cache_salt", None))
            track.private = any(
                getattr(request, name, None) for name in ("cache_salt", "mm_features")
            ) or getattr(request, "prompt_embeds", None) is not None
        return track

    def _adapter(self, request):
        lora = getattr(request, "lora_request", None)
        if lora is None:
            return None
        return self.adapters.of(lora) if not apart.is_outdated(request) else OUTDATED

    def _look_at_images(self, track):
        """Checks new images. Streams of input bring more images later."""
        features = getattr(track.request, "mm_features", None) or ()
        if len(features) == track.images:
            return
        track.images = len(features)
        first = media.first_of(features)
        if first is not None and not self.images:
            track.most = first // self.block_size
        first = media.first_of(features, lambda feature: not media.is_named(feature))
        if first is not None:
            track.own = (first // self.block_size, track.own[1] or self.own)
            self.unnamed()

    def _ask(self, track, wanted):
        if track.question is not None:
            self.asker.forget(track.question)
        track.answer, track.asked = None, wanted
        ends = (self.groups.ends,) if self.groups is not None else ()
        track.question = self.asker.ask([c.name for c in wanted], track.tenant, *ends)
        if track.question is None:
            track.answer = (0, 255)
            track.answered_at = time.monotonic()

    def _count_found(self, track, wanted, computed):
        """Number of these chunks that are there; None: not known yet."""
        if not self._covers(track, wanted):
            self._ask(track, wanted)
        count = self._read(track, wanted, computed)
        if count == -1:  # interrupted before the end of the wanted chunks
            self._ask(track, wanted)
            count = self._read(track, wanted, computed)
        return count

    def _covers(self, track, wanted):
        """Returns whether the last question covered all of this, and recently."""
        if not track.asked or (track.question is None and track.answer is None):
            return False
        if track.answer is not None and time.monotonic() - track.answered_at >= ANSWER_HOLDS_S:
            return False
        skipped = (wanted[0].first - track.asked[0].first) // self.per_chunk
        end = skipped + len(wanted)
        return (
            0 <= skipped and end <= len(track.asked)
            and track.asked[skipped].name == wanted[0].name
            and track.asked[end - 1].name == wanted[-1].name
        )  # fmt: skip

    def _read(self, track, wanted, computed):
        """Number of the wanted chunks that were found; None: not known yet; -1: this answer is about other chunks."""
        if track.answer is None:
            began = time.monotonic()
            wait_s = 0.0 if self.running else max(0.0, self.wait_left_s)
            answer = self.asker.answer(track.question, wait_s)
            now = time.monotonic()
            self.wait_left_s -= now - began
            if answer is None:
                return None
            track.question = None
            track.answer = (min(answer[0], len(track.asked)), answer[1])
            track.answered_at = now
        count, track.source = track.answer
        skipped = (wanted[0].first - track.asked[0].first) // self.per_chunk
        if 0 < skipped and count < skipped:
            return -1
        if self.groups is not None and count - skipped > len(wanted):
            return -1  # windows that end here are unknown
        found = min(count - skipped, len(wanted))
        if not track.counted:
            track.counted = True
            self._answered(track.request, computed, len(wanted), found)
        return found

    def allocated(self, request, block_ids, tokens):
        """Called when blocks were allocated for a request of which `tokens` are to be loaded. block_ids: with several
        groups of KV caches those of each."""
        track = self.tracks.get(request.request_id)
        if tokens == 0:
            return
        if track is not None:
            track.loading = True
        lead = block_ids if self.groups is None else block_ids[self.lead]
        if track is not None and track.asking is not None and track.asking.blended:
            self._allocated_fragments(track, lead, tokens)
            return
        if track is None or track.answer is None:
            self.load_nothing(request, block_ids)
            return
        begin = track.computed // self.block_size
        end = begin + tokens // self.block_size
        if self.groups is None:
            pieces = self._pieces(track.found, begin, end, lead)
        else:
            pieces = self.groups.pieces(track.found, begin, end, block_ids)
        if pieces is None:  # vLLM wants something else than was found: this load fails, and the engine computes it
            pieces = [self._nothing(lead[begin:end])]
        self.loads.append(Load(request.request_id, pieces, self.asker.epoch, track.tenant))
        self.computed = True  # the engine caches these blocks, too
        track.block_ids = list(lead)
        whole = [c for c in track.found if c.count == self.per_chunk]
        track.tail_stored = len(whole) < len(track.found)
        if whole:
            track.stored = whole[-1].first // self.per_chunk + 1
        track.answer, track.asked = None, []

    def load_nothing(self, request, block_ids):
        """Called when allocated() failed."""
        request_id = request.request_id
        lead = block_ids if self.groups is None else block_ids[self.lead]
        track = self.tracks.get(request_id)
        begin = 0
        if track is not None:
            begin, track.block_ids = track.computed // self.block_size, list(lead)
        self.loads = [load for load in self.loads if load.request != request_id]
        self.loads.append(Load(request_id, [self._nothing(lead[begin:])], self.asker.epoch))

    @staticmethod
    def _pieces(found, begin, end, block_ids):
        """The pieces of chunks `found` to load into these blocks; None: they do not cover all wanted blocks."""
        pieces, at = [], begin
        for chunk in found:
            low, high = max(chunk.first, begin), min(chunk.first + chunk.count, end)
            if low < high:
                pieces.append(LoadChunk(
                    chunk.name, chunk.count, low - chunk.first, list(block_ids[low:high])))  # fmt: skip
                at = high
        return pieces if at == end else None

    def _nothing(self, block_ids):
        """A load that a request waits for and that was never planned: all of it fails, and is computed."""
        if self.groups is None:
            return LoadChunk(NO_CHUNK, self.per_chunk, 0, list(block_ids))
        return LoadChunk(NO_CHUNK, self.per_chunk, [0], [list(block_ids)], WHOLE)

    # --- store ---

    def step(self, output):
        """(loads, stores) for the step that a scheduler output describes."""
        stores = []
        for new in output.scheduled_new_reqs:
            track = self.tracks.get(new.req_id)
            if track is not None:
                track.block_ids, track.loading = list(new.block_ids[self.lead]), False
                track.old = track.old and new.num_computed_tokens > 0
                if track.asking is not None and new.num_computed_tokens > 0:
                    track.asking.cold = False
                self._complete(track, new.num_computed_tokens, output, stores)
        self._go_on(output.scheduled_cached_reqs, output, stores)
        self._measure(output)
        self.wait_left_s = self.settings.step_wait_s
        for store in stores:  # no earlier: the engine then waits until the ranks have copied these
            self.tracks[store.request].storing = True
        if self.groups is not None:
            self.groups.hold_all(store for store in stores if store.part == ENDS)
        return self.take_loads(), stores

    def take_loads(self):
        """Loads that were planned since the last step; requests wait for them."""
        loads, self.loads = self.loads, []
        return loads

    def _go_on(self, cached, output, stores):
        """Handles requests that ran before: examines only those that may have completed a chunk."""
        scheduled, resumed = output.num_scheduled_tokens, cached.resumed_req_ids
        rows = zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True)
        for request_id, fresh, computed in rows:
            track = self.tracks.get(request_id)
            if track is None:
                continue
            if track.asking is not None and resumed and request_id in resumed and computed > 0:
                track.asking.cold = False
            if resumed and request_id in resumed:
                track.block_ids, track.loading = list(fresh[self.lead]) if fresh is not None else [], False
                track.old = track.old and computed > 0
            elif fresh is not None:
                track.block_ids += fresh[self.lead]
            if computed + scheduled.get(request_id, 0) >= track.due:
                self._complete(track, computed, output, stores)

    def _measure(self, output):
        scheduled = output.num_scheduled_tokens
        drafts = output.scheduled_spec_decode_tokens
        self.running = set(scheduled)
        total = sum(scheduled.values())
        prompts = sum(n for r, n in scheduled.items() if n > 1 + len(drafts.get(r, ())))
        enough = prompts >= max(PREFILL_TOKENS, PREFILL_SHARE * total)
        self.prefill_tokens = total if enough else 0
        self.idle = total == 0
        self.computed = self.computed or total > 0

    def _complete(self, track, computed, output, stores):
        """Adds chunks that this step completes."""
        request = track.request
        if not self.usable or self.stale or track.old or track.mixed is None or self.settings.read_only:
            return
        drafts = len(output.scheduled_spec_decode_tokens.get(request.request_id, ()))
        tokens = computed + output.num_scheduled_tokens.get(request.request_id, 0) - drafts
        if not self.settings.save_decode_cache:
            tokens = min(tokens, request.num_prompt_tokens)
        if track.asking is not None:
            self._complete_fragments(track, tokens, stores)
            if track.asking.blended:  # its blocks are never stored as exact chunks
                return
        blocks = min(tokens // self.block_size, len(track.block_ids), len(request.block_hashes))
        if blocks // self.per_chunk > track.stored:
            stores += self._stores(track, self._chunks(track, blocks, skip=track.stored))
            track.stored = blocks // self.per_chunk
        prompt = request.num_prompt_tokens // self.block_size
        if self.settings.save_unfull_chunk and not track.tail_stored and blocks >= prompt > 0:
            track.tail_stored = True
            if prompt % self.per_chunk != 0:
                skip = prompt // self.per_chunk
                stores += self._stores(track, self._chunks(track, prompt, True, skip))
        track.due = (track.stored + 1) * self.per_chunk * self.block_size
        if self.settings.save_unfull_chunk and not track.tail_stored:
            track.due = min(track.due, prompt * self.block_size)
        if track.asking is not None and not track.asking.stored:
            track.due = min(track.due, request.num_prompt_tokens)

    def _complete_fragments(self, track, tokens, stores):
        """Adds stores of a prompt's fragments once all of it is computed, without blended tokens."""
        asking, request = track.asking, track.request
        track.due = request.num_prompt_tokens if not asking.stored else NEVER
        if asking.stored or tokens < request.num_prompt_tokens:
            return
        asking.stored, track.due = True, NEVER
        if asking.cold or not asking.blended:
            made = self.blender.stores(
                request.request_id, asking, track.block_ids, self.asker.epoch, track.tenant)  # fmt: skip
            for store in made:
                store.files = track.adapter and track.adapter.place
            stores += made

    def _stores(self, track, found):
        """Stores of these chunks, as far as the engine still has their blocks."""
        if self.groups is None:
            return [self._store(track, chunk) for chunk in found]
        stores, tables = [], self.groups.of(track.request.request_id)
        for chunk in found:
            whole, ends = self.groups.blocks_of(chunk, tables)
            if whole is None:
                continue
            store = self._store(track, chunk)
            store.block_ids, store.part, store.count = whole, WHOLE, chunk.count
            stores.append(store)
            if ends is not None:
                stores.append(Store(
                    store.request, chunk.name, chunk.name, ends, chunk.tokens, epoch=store.epoch,
                    tenant=store.tenant, part=ENDS, count=chunk.count, files=store.files))  # fmt: skip
        return stores

    def _store(self, track, chunk):
        request = track.request
        first, end = chunk.first, chunk.first + chunk.count
        hashes = request.block_hashes
        lora = getattr(request, "lora_request", None)
        ids = None
        if self.report_tokens and not track.private:
            ids = request.all_token_ids[first * self.block_size : end * self.block_size]
            ids = array("I", ids).tobytes()
        return Store(
            request.request_id, chunk.name, chunk.parent, track.block_ids[first:end], chunk.tokens,
            [bytes(h) for h in hashes[first:end]],
            bytes(hashes[first - 1]) if first > 0 else None,
            ids, lora.lora_name if lora is not None else None, self.asker.epoch,
            self.namer and self.namer.name(request, track.names, chunk, self.per_chunk), track.tenant,
            files=track.adapter and track.adapter.place,
        )  # fmt: skip

    def failed(self, blocks):
        """Called for blocks that were not filled: their chunks will be computed, and may be stored again. To be called
        before loaded().

        The engine asks again about a request that has no block filled, and could not admit another load of it, nor what
        waits behind it, before others that it has loaded make room; these wait behind it. So it is computed."""
        for track in self.tracks.values():
            for index, block in enumerate(track.block_ids):
                if block in blocks:
                    track.refused = track.refused or (track.loading and index == 0)
                    track.stored = min(track.stored, index // self.per_chunk)
                    track.tail_stored = False
                    track.due = 0
                    break

    def failed_requests(self, requests):
        """Called for requests whose loads failed completely: the engine has given up their blocks and computes them.
        The engine would ask again, and might get the same answer, so these requests are not loaded any more."""
        for request_id in requests:
            track = self.tracks.get(request_id)
            if track is not None:
                track.refused, track.tail_stored = True, False
                track.stored = track.due = 0
                track.block_ids, track.found = [], []

    def loaded(self, requests):
        """Called when the engine knows that all ranks have finished loads of these."""
        for request_id in requests:
            track = self.tracks.get(request_id)
            if track is not None:
                track.loading = False

    def finished(self, request):
        """Called when a request ends. True: ranks may still be copying from its blocks. The ranks learn that
        (take_ended) and report the end of their copies.

        The engine itself keeps the blocks until a load is over, and gives them away at the first end that it learns, of
        a load or of stores: only one of them may be reported. While a load is under way there are no stores to wait
        for, since a request is loaded before it stores (_begin_again)."""
        track = self.tracks.pop(request.request_id, None)
        self.adapters.ended(request.request_id)
        self.running.discard(request.request_id)
        if track is None:
            return False
        for question in (track.question, track.asking and track.asking.question):
            if question is not None:
                self.asker.forget(question)
        waits = track.storing and not track.loading
        if waits:
            self.ended.add(request.request_id)
        return waits

    def take_ended(self):
        """(requests for which finished() returned True, requests whose blocks are given away) since the last call."""
        ended, taken = self.ended, self.taken
        self.ended, self.taken = set(), set()
        return ended, taken

    def _answered(self, request, computed, asked, found):
        chunk_tokens = self.per_chunk * self.block_size
        self.count("lookup_tokens", asked * chunk_tokens)
        self.count("hit_tokens", found * chunk_tokens)
        self.count("vllm_hit_tokens", computed)
        had = max(computed, computed // chunk_tokens * chunk_tokens + found * chunk_tokens)
        rates = self.counts.setdefault("hit_rates", [])
        rates.append(min(1.0, had / max(1, request.num_prompt_tokens)))

    def count(self, name, by):
        if by:
            self.counts[name] = self.counts.get(name, 0) + by

    def take_counts(self):
        """Counts since the last call."""
        counts, self.counts = self.counts, {}
        return counts

    def reset(self):
        """Drops all answers and computed chunks so far."""
        self.asker.reset()
        for track in self.tracks.values():
            track.question = track.answer = None
            track.asked = []
            track.old = bool(track.block_ids)
            if track.asking is not None:
                track.asking.question = track.asking.count = None

    def weights_changed(self):
        """Called when other weights compute from here on."""
        self.reset()
        self.stale = self.stale or self.computed

    def engine_forgot(self):
        """Called when the engine's own cache is empty."""
        self.own = secrets.token_bytes(32)  # clients may give names to other images from now on
        self.adapters.forgot()
        if self.stale:
            self.reset()  # drops blocks computed since the weights changed
        self.stale = self.computed = False
