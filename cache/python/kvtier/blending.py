"""Fragments in vLLM: cached text that is not a prefix, taken as if it were one.

vLLM lets a connector fill only the beginning of a prompt, so the connector takes a run of known fragments from a
prompt's first token on, in any order; no token of the run is computed again. Answers then differ from exact ones. A
request asks for blending in its `kv_transfer_params`:

	"kvtier.fragments": true      blended: takes fragments; those of a prompt of which nothing was cached are stored
	"kvtier.fragments": "store"   exact: its fragments are stored for others to take
	"kvtier.fragments": false     exact, as without

and `"kvtier.fragment_bounds": [n, ...]`, first tokens of segments, gives the beginnings of its fragments.

Visibility of blended blocks. The engine's own prefix cache, its KV events and kvtier's exact chunks use block hashes. A
blended request gets a cache salt of a domain of its own, made from its former salt, before the engine first looks at
it: its hashes are no exact request's. No exact chunks are stored from it, nor fragments once it has taken any.

Scheduler: Blender, with an Asking for each request. Rank: Copies, in the place of a PagedCache for chunks of fragments.
On a device the library copies them through the copier of blocks (copier.py), in the order of the same streams, and
turns keys there.
"""

import contextlib
import ctypes
import hashlib
import json
from dataclasses import dataclass, field

from . import apart, fragments, library
from .ask import NO_TENANT
from .copier import AFTER_EVENT
from .work import FRAGMENT, Load, LoadChunk, Store

ASKS, BOUNDS = "kvtier.fragments", "kvtier.fragment_bounds"
DOMAIN, OTHERS = "kvtier.fragments/1:", "kvtier.exact/1:"
ASK_FRAGMENTS = 1 << 31  # replaces a question's `ends`


class Settings(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("enabled", ctypes.c_uint32),
        ("by", ctypes.c_uint32),
        ("min_tokens", ctypes.c_uint32),
        ("average_tokens", ctypes.c_uint32),
        ("max_tokens", ctypes.c_uint32),
        ("first_tokens", ctypes.c_uint32),
        ("check_layer", ctypes.c_uint32),
        ("share", ctypes.c_double),
        ("separator", ctypes.c_char_p),
    ]


@dataclass
class How:
    """What the configuration says about fragments."""

    enabled: bool = False
    by: int = fragments.BY_SEPARATOR
    least: int = 256  # least number of tokens worth blending
    average: int = 1024
    longest: int = 16384
    share: float = 0.0
    separator: str = ""


def settings(yaml):
    """How, from libkvtier's configuration; a library without fragments has none."""
    try:
        lib = fragments.load_library()
    except library.KvtierError:
        return How()
    config, data = ctypes.create_string_buffer(library.CONFIG_BYTES), yaml.encode()
    lib.kvt_config_init(config, library.CONFIG_BYTES)
    lib.kvt_config_read(config, b"cache", data, len(data), None)  # the ranks log the mistakes in it
    out = Settings(size=ctypes.sizeof(Settings))
    lib.kvt_fragments_settings.argtypes = [ctypes.c_void_p, ctypes.POINTER(Settings)]
    found = How()
    if lib.kvt_fragments_settings(config, ctypes.byref(out)) == library.OK:
        found = How(
            bool(out.enabled), out.by, out.min_tokens, out.average_tokens, out.max_tokens, out.share,
            out.separator.decode(),
        )  # fmt: skip
    lib.kvt_config_finish(config)
    return found


@dataclass
class Piece:
    """One chunk of a fragment of a prompt."""

    name: bytes  # chain id
    parent: bytes | None
    at: int  # first token of the prompt
    first: int  # first token of the fragment
    tokens: int

    @property
    def end(self):
        return self.at + self.tokens


def pieces_of(lib, cuts, tokens, chunk_tokens, lora=None):
    """Chunks of the fragments [(first, count)] of a prompt, one fragment's after the other's."""
    packed, found = fragments.ids(tokens), []
    for begin, count in cuts:
        parent = None
        for at in range(begin, begin + count, chunk_tokens):
            size = min(chunk_tokens, begin + count - at)
            out = (ctypes.c_uint8 * 32)()
            here = ctypes.byref(packed, 4 * at)
            lib.kvt_fragment_chain_id(parent, lora, len(lora) if lora else 0, here, size, out)
            found.append(Piece(bytes(out), parent, at, at - begin, size))
            parent = found[-1].name
    return found


@dataclass
class FragmentLoad(LoadChunk):
    piece: Piece = None
    blocks: list[int] = field(default_factory=list)  # from the block of its first token on
    slot: int = 0  # place of its first token in them
    end: int = 0  # end of its wanted tokens; the first `skip` are not wanted
    tenant: bytes = NO_TENANT


@dataclass
class FragmentStore(Store):
    piece: Piece = None
    slot: int = 0


@dataclass
class Asking:
    """A request that uses fragments."""

    blended: bool  # takes fragments; otherwise the request is exact, and stores some
    pieces: list[Piece]
    question: int | None = None
    count: int | None = None  # number of chunks that are there, from the first one on
    cold: bool = True  # no part of its prompt was cached
    stored: bool = False
    adapter: object = None  # adapters.Adapter; None: the model itself
    digest: bytes | None = None  # digest of the adapter's content, which is in the pieces' names

    @property
    def named(self):
        """Returns whether its pieces' names still fit the weights that compute them: no longer once the adapter was
        replaced."""
        return self.adapter is None or self.adapter.digest == self.digest


class Blender:
    """The scheduler's side."""

    def __init__(self, how, separator, chunk_tokens, block_size, log, most_tokens=1 << 20):
        """separator: its token ids, or None: prompts are cut by content, or at bounds that requests give."""
        self.how, self.separator, self.log = how, separator, log
        self.chunk_tokens, self.block_size, self.most_tokens = chunk_tokens, block_size, most_tokens
        self.lib = fragments.load_library()
        self.told = set()
        self.off = False  # the engine does not allow keeping requests apart
        if how.share > 0:
            self._tell_once(
                "share", "kvtier: fragments.recompute_share is %s: vLLM computes nothing again that a connector has "
                "filled; the share is 0 here", how.share)  # fmt: skip

    def _tell_once(self, what, *line):
        if what not in self.told:
            self.told.add(what)
            self.log.warning(*line)

    def look(self, request, adapter=None):
        """An Asking, or None: the request is exact and stores no fragments. Called before the engine has looked for its
        own blocks of the request. adapter: adapters.Adapter of its LoRA adapter."""
        digest = adapter.digest if adapter is not None else None  # another thread may remove it at any time
        given = getattr(request, "kv_transfer_params", None)
        asks = given.get(ASKS) if isinstance(given, dict) else None
        if not asks:
            return None
        if asks is not True and asks != "store":
            self._tell_once("asks", "kvtier: %s is %r in a request, expected true, false or \"store\": it is exact",
                            ASKS, asks)  # fmt: skip
            return None
        why_not = self._why_not(request, adapter, digest) if not self.off else "this engine does not let it be kept apart"
        if why_not is not None:
            self._tell_once(why_not, "kvtier: a request asks for %s and is exact: %s. This is logged once.", ASKS, why_not)
            return None
        cuts = self._cut(request, given.get(BOUNDS))
        if not cuts:
            return None
        if asks is True and not self._into_domain(request):
            return None
        tokens = request.prompt_token_ids
        pieces = pieces_of(self.lib, cuts, tokens, self.chunk_tokens, digest)
        return Asking(asks is True, pieces, adapter=adapter, digest=digest)

    def leave_domain(self, request):
        """Gives a request whose own salt is in the blended domain, by chance or on purpose, another salt."""
        salt = getattr(request, "cache_salt", None)
        if isinstance(salt, str) and salt.startswith(DOMAIN):
            self._tell_once("salt", "kvtier: a request's cache_salt begins with %s, which is kvtier's: it gets another", DOMAIN)
            self._give_salt(request, OTHERS + salt)

    def _why_not(self, request, adapter, digest):
        tokens = getattr(request, "prompt_token_ids", None)
        if getattr(request, "mm_features", None) or getattr(request, "prompt_embeds", None) is not None or not tokens:
            return "it has more than tokens in its prompt"
        if getattr(request, "lora_request", None) is not None and (adapter is None or digest is None):
            return "its LoRA adapter has no name by content, or not yet"
        if len(tokens) > self.most_tokens:
            return f"its prompt has more than {self.most_tokens} tokens"
        return None

    def _cut(self, request, bounds):
        tokens = request.prompt_token_ids
        try:
            if bounds is not None:
                return fragments.cut(tokens, bounds=bounds, max_tokens=self.how.longest)
            if self.separator is not None:
                return fragments.cut(tokens, separator=self.separator, max_tokens=self.how.longest)
            return fragments.cut(tokens, content=(self.how.least, self.how.average, self.how.longest))
        except (ValueError, TypeError, OverflowError):
            self._tell_once("bounds", "kvtier: %s of a request are no ascending numbers of its tokens: it is exact", BOUNDS)
            return None

    def _into_domain(self, request):
        """Gives a request that is to be blended a salt, and so block hashes, that no exact request has. False: the
        request is unchanged."""
        salt, hashes = getattr(request, "cache_salt", None), list(getattr(request, "block_hashes", ()))
        if self._give_salt(request, DOMAIN + (salt or "")):
            return True
        with contextlib.suppress(Exception):  # the exact request must not find blocks that others blended
            request.cache_salt = salt
            request.block_hashes[:] = hashes
        return False

    def _give_salt(self, request, salt):
        """False: the request is exact, like all from now on; its hashes are those of exact blocks."""
        try:
            apart.give_salt(request, salt)
            return True
        except ValueError:
            pass
        except Exception as error:
            self.log.warning("kvtier: a request cannot be given another cache salt: %r", error)
        self.off = True
        self._tell_once("domain", "kvtier: this engine's requests cannot be given other block hashes: none is blended")
        return False

    def run(self, asking, most):
        """Number of the prompt's tokens, in whole blocks and at most `most`, that are there from the first one on."""
        if not asking.count or not asking.named:
            return 0
        return min(asking.pieces[asking.count - 1].end, most) // self.block_size * self.block_size

    def load(self, request_id, asking, begin, end, block_ids, epoch, tenant):
        """A Load of tokens [begin, end) of a prompt; None: not all of them are there."""
        found, size, at = [], self.block_size, begin
        for piece in asking.pieces[: asking.count or 0]:
            low, high = max(piece.at, begin), min(piece.end, end)
            if low >= high:
                continue
            first, last = piece.at // size, (high + size - 1) // size
            found.append(FragmentLoad(
                piece.name, 0, low - piece.at, block_ids[low // size : last], FRAGMENT, piece,
                block_ids[first:last], piece.at % size, high - piece.at, tenant))  # fmt: skip
            at = high
        return Load(request_id, found, epoch, tenant) if at == end and asking.named else None

    def stores(self, request_id, asking, block_ids, epoch, tenant):
        """Stores of all fragments of a computed prompt."""
        size, found = self.block_size, []
        for piece in asking.pieces if asking.named else ():
            first, last = piece.at // size, (piece.end + size - 1) // size
            found.append(FragmentStore(
                request_id, piece.name, piece.parent, block_ids[first:last], piece.tokens, epoch=epoch, tenant=tenant,
                part=FRAGMENT, piece=piece, slot=piece.at % size))  # fmt: skip
        return found


# --- a rank's side --------------------------------------------------------------------------------


def place_of(paged, head, attention, latent=False):
    """The place of keys and values in a layout.PagedCache. attention: names of its layers' backends; latent: they keep
    latent keys (MLA). ValueError: an unknown place."""
    if latent:
        return LatentPlace(paged, head, attention)
    return Place(paged, head) if paged.device.type == "cpu" else DevicePlace(paged, head, attention)


def _check_known(attention, known):
    unknown = attention - known
    if unknown or not attention:
        raise ValueError(f"where attention by {', '.join(sorted(unknown)) or 'no name'} keeps keys is not known")


class LatentPlace:
    """The place in the paged cache of vLLM's attention over latent keys (MLA): [block, token, value], or with a head's
    axis after the block's. A token has one vector, which ends with its rotary key, and no values."""

    # By their source, vLLM 0.32: what concat_and_cache_mla writes. Others pack numbers, or also keep an indexer's keys.
    KEY_AT_END = {"CPU_MLA", "CUTLASS_MLA", "FLASHINFER_MLA", "FLASHMLA", "FLASH_ATTN_MLA", "TRITON_MLA"}
    value_head = 0

    def __init__(self, paged, head, attention):
        first = paged.tensors[0]
        shape, strides, size = tuple(first.shape), first.stride(), first.element_size()
        numbers = str(first.dtype).removeprefix("torch.")
        if numbers not in fragments.VALUES:  # scales lie among the numbers (fp8_ds_mla), or elsewhere
            raise ValueError(f"latent keys of type {numbers} (kv_cache_dtype fp8, fp8_ds_mla and the like) are not moved")
        if paged.device.type != "cpu" and paged.copier is None:
            raise ValueError("libkvtier does not copy blocks of this device")
        _check_known(attention, self.KEY_AT_END)
        if len(shape) == 4 and shape[1] == 1:
            shape, strides = (shape[0], *shape[2:]), (strides[0], *strides[2:])
        if len(shape) != 3 or shape[2] != head:
            raise ValueError(f"the KV cache of latent keys has the unknown shape {tuple(first.shape)}")
        self.heads, self.block_tokens = 1, shape[1]
        layers = (ctypes.c_void_p * len(paged.tensors))(*(tensor.data_ptr() for tensor in paged.tensors))
        block, token, value = (stride * size for stride in strides)
        keys = fragments.Plane(layers, block, token, head * size, value)
        self.place = fragments.Place(keys, None, self.block_tokens, paged.block_count)


class DevicePlace:
    """The place in the paged cache of vLLM's attention on GPUs: [block, head, token, keys and then values], in any
    order of memory."""

    KEYS_FIRST = {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"}  # by their source, vLLM 0.32
    value_head = None  # as the key's

    def __init__(self, paged, head, attention):
        first = paged.tensors[0]
        shape, strides, size = tuple(first.shape), first.stride(), first.element_size()
        if paged.copier is None:
            raise ValueError("libkvtier does not copy blocks of this device")
        _check_known(attention, self.KEYS_FIRST)
        if len(shape) != 4 or shape[3] != 2 * head:
            raise ValueError(f"the KV cache has the unknown shape {shape}")
        self.heads, self.block_tokens = shape[1], shape[2]

        def plane(offset):
            layers = (ctypes.c_void_p * len(paged.tensors))(*(t.data_ptr() + offset for t in paged.tensors))
            block, head_stride, token, value = (stride * size for stride in strides)
            return fragments.Plane(layers, block, token, head_stride, value)

        halves = plane(0), plane(head * strides[3] * size)
        self.place = fragments.Place(*halves, self.block_tokens, paged.block_count)


class Place:
    """The place in the paged cache of vLLM's attention on CPUs."""

    value_head = None

    def __init__(self, paged, head):
        import torch

        first = paged.tensors[0]
        if first.dim() != 4 or first.shape[3] != 2 * head or not first.is_contiguous():
            raise ValueError(f"the KV cache has the unknown shape {tuple(first.shape)}")
        self.heads, self.block_tokens, self.head = first.shape[1], first.shape[2], head
        size = first.element_size()
        keys, values = self._strides(torch, first.dtype)
        half = self.block_tokens * head * size

        def plane(offset, strides):
            layers = (ctypes.c_void_p * len(paged.tensors))(*(t.data_ptr() + offset for t in paged.tensors))
            token, value = strides
            return fragments.Plane(layers, first.stride(0) * size, token * size, first.stride(1) * size, value * size)

        self.place = fragments.Place(plane(0, keys), plane(half, values), self.block_tokens, paged.block_count)

    def _strides(self, torch, dtype):
        """(token, value) strides of keys and of values: writes numbers through the engine's own kernel and finds their
        places."""
        from vllm import _custom_ops as ops
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        tokens, head = self.block_tokens, self.head
        if max(tokens, head) > 256:
            raise ValueError("a block has more than 256 tokens, or a head more than 256 values")
        isa = _get_attn_isa(dtype, tokens, head)

        def written(numbers):
            cache = torch.zeros(1, 1, tokens, 2 * head, dtype=dtype)
            keys, values = cache.view(1, 1, 2 * tokens, head).chunk(2, dim=2)
            rows = numbers.to(dtype).view(tokens, 1, head).contiguous()
            ops.cpu_attn_reshape_and_cache(
                rows, rows, keys, values, torch.arange(tokens), isa, k_scale=1.0, v_scale=1.0, kv_cache_dtype="auto")
            return keys.flatten().long(), values.flatten().long()

        which = torch.arange(tokens).view(-1, 1), torch.arange(head).view(1, -1)
        by_token, by_value = (written(w.expand(tokens, head)) for w in which)
        found = []
        for token, value in zip(by_token, by_value, strict=True):
            at = torch.full((tokens, head), -1)
            at[token, value] = torch.arange(tokens * head)
            strides = int(at[1, 0] - at[0, 0]), int(at[0, 1] - at[0, 0])
            if not torch.equal(at, which[0] * strides[0] + which[1] * strides[1]):
                raise ValueError(f"attention on this CPU ({isa}) packs keys")
            found.append(strides)
        return found


class Part:
    """The functions of a PagedCache that rank.py needs, for one chunk of a fragment."""

    def __init__(self, copies, one):
        self.copies, self.one = copies, one

    def chunk_bytes(self, count):
        return self.copies.fragments.chunk_bytes(self.one.piece.tokens)

    def gather(self, block_ids, room, after):
        return self.copies.call("kvt_fragments_pack", self.one, block_ids, 0, self.one.piece.tokens, room) == library.OK

    def scatter(self, block_ids, skip, count, room, after):
        one = self.one
        status = self.copies.call("kvt_fragments_unpack", one, one.blocks, skip, one.end, room)
        if status == library.ECORRUPT:
            self.copies.erase(one)
        return lambda: status == library.OK


class DevicePart(Part):
    """A Part on a device: the copy follows an event of the device, and is waited for."""

    def gather(self, block_ids, room, after):
        one = self.one
        _, wait = self.copies.begin("kvt_fragments_gather_begin", one, block_ids, 0, one.piece.tokens, room, after)
        return wait()

    def scatter(self, block_ids, skip, count, room, after):
        one = self.one
        status, wait = self.copies.begin("kvt_fragments_scatter_begin", one, one.blocks, skip, one.end, room, after)
        if status == library.ECORRUPT:
            self.copies.erase(one)
        return wait


class PieceParts(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("tokens", ctypes.c_uint32),
        ("first", ctypes.c_uint64),
        ("position", ctypes.c_uint64),
        ("skip", ctypes.c_uint32),
        ("end", ctypes.c_uint32),
    ]


class CopyParts(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("view", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("after", ctypes.c_void_p),
        ("piece", ctypes.POINTER(PieceParts)),
        ("place", ctypes.POINTER(fragments.PlaceParts)),
        ("segments", ctypes.POINTER(library.Segment)),
        ("segment_count", ctypes.c_size_t),
    ]


class Copies:
    """Fragments of one rank. Only the rank's thread uses them, except for the construction."""

    def __init__(
        self, cache, place, heads, layers, config_json, values, head, chunk_tokens, fingerprint, rank, copier=None,
        value_head=None,
    ):  # fmt: skip
        """place: fragments.Place. copier: of a KV cache on a device; None: the cache lies in this machine's memory.
        value_head: as in fragments.Fragments. ValueError: this model's fragments cannot be moved."""
        self.place, self.cache, self.copier = place, cache, copier
        self.make = lambda mark: fragments.Fragments(
            cache, config_json, values, layers, heads, head, value_head, chunk_tokens,
            hashlib.sha256(fingerprint + mark).digest(), rank)  # fmt: skip
        self.fragments = self.make(b"")
        self.lib = self.fragments.lib
        segments = ctypes.POINTER(library.Segment)
        for name in ("kvt_fragments_pack", "kvt_fragments_unpack"):
            getattr(self.lib, name).argtypes = [
                ctypes.c_void_p, ctypes.POINTER(PieceParts), ctypes.POINTER(fragments.PlaceParts), segments,
                ctypes.c_size_t]  # fmt: skip
        self.lib.kvt_fragments_chunk_key.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(library.Tenant), ctypes.c_char_p, ctypes.POINTER(library.Key)]  # fmt: skip
        self.view = ctypes.c_uint32()
        if copier is not None:
            try:
                self._make_view()
            except BaseException:
                self.fragments.close()
                raise

    def _make_view(self):
        """Gives the copier the places of tokens, once."""
        void = ctypes.c_void_p
        try:
            make, *begins = (getattr(self.lib, f"kvt_fragments_{name}") for name in ("view", "gather_begin", "scatter_begin"))
        except AttributeError as error:
            raise ValueError("this libkvtier moves no fragments on a device") from error
        make.argtypes = [void, void, ctypes.POINTER(fragments.PlaceParts), ctypes.POINTER(ctypes.c_uint32)]
        for begin in begins:
            begin.argtypes = [void, void, ctypes.POINTER(CopyParts), ctypes.POINTER(ctypes.c_uint64)]
        where = self.place.at([], 0)
        status = make(self.fragments.handle, self.copier.handle, ctypes.byref(where), ctypes.byref(self.view))
        if status != library.OK:
            raise ValueError("libkvtier_cuda.so turns no keys on this device: it was built without nvcc, or its kernel does "
                             f"not run here (status {status})")  # fmt: skip

    def renew(self, mark):
        """Takes other weights: no fragment stored before is found from now on."""
        made = self.make(mark)
        self.fragments.close()
        self.fragments = made

    def close(self):
        self.fragments.close()

    def key(self, name, tenant):
        out = library.Key()
        owner = library.Tenant((ctypes.c_uint8 * 16)(*tenant))
        self.lib.kvt_fragments_chunk_key(self.fragments.handle, ctypes.byref(owner), name, ctypes.byref(out))
        return bytes(out.bytes)

    def of(self, one):
        return Part(self, one) if self.copier is None else DevicePart(self, one)

    def erase(self, one):
        """Erases a wrong chunk, so that it is not found again."""
        keys, erased = library.pack_keys([self.key(one.name, one.tenant)]), ctypes.c_size_t()
        self.lib.kvt_erase(self.cache.handle, keys, 1, ctypes.c_uint64(0), ctypes.byref(erased))

    def _parts(self, one, blocks, skip, end, room):
        piece = one.piece
        parts = PieceParts(ctypes.sizeof(PieceParts), piece.tokens, piece.first, piece.at, skip, end)
        segments = (library.Segment * len(room))(*((base, size, 0) for base, size in room))
        return parts, self.place.at(blocks, one.slot), segments

    def call(self, name, one, blocks, skip, end, room):
        parts, place, segments = self._parts(one, blocks, skip, end, room)
        call = getattr(self.lib, name)
        return call(self.fragments.handle, ctypes.byref(parts), ctypes.byref(place), segments, len(segments))

    def begin(self, name, one, blocks, skip, end, room, after):
        """(status, a function that waits until the copy is over and returns whether it succeeded). after: a recorded
        event (layout.py)."""
        parts, place, segments = self._parts(one, blocks, skip, end, room)
        copy = CopyParts(
            ctypes.sizeof(CopyParts), self.view.value, 0 if after is None else AFTER_EVENT, 0, after and after.cuda_event,
            ctypes.pointer(parts), ctypes.pointer(place), segments, len(segments))  # fmt: skip
        op = ctypes.c_uint64()
        status = getattr(self.lib, name)(
            self.fragments.handle, self.copier.handle, ctypes.byref(copy), ctypes.byref(op))  # fmt: skip
        return status, self.copier.waiting_for(op) if status == library.OK else lambda: False


def config_json(config):
    """config.json of a model in the engine's form. config: its hf_text_config."""
    return json.dumps({name: value for name, value in config.to_dict().items() if _plain(value)})


def _plain(value):
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
