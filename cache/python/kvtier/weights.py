"""Names of the engine's loaded weights, by three rules.

A chunk outlives the engine that stored it, on NVMe or in a shared tier, and a name such as `org/model` or `/models/m`
does not identify the weights behind it today. So weights are named

1. of the Hugging Face hub: by the commit of their snapshot, and by the content of files in it that a user changed;
2. of a folder or a file: by SHA-256 of all files, if none of them, and nothing on the way to them, has changed since
   this process began, which is the one that loaded them;
3. else by the user's `model_version`.

If neither of the first two applies (object storage, formats that load from elsewhere, files that changed while the
engine started) Identity.why_not has the reason: without `model_version` no chunk may be shared with another process
then.

Reading weights takes as long as the disk needs; so digests are kept in a file of the user's own cache folder, by
device, inode, times and size of each file, and each file is read once on a machine.
"""

import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import re
import stat
import time
from dataclasses import dataclass

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
DESCRIBING = (".json", ".py")  # configuration, and code that is loaded with the model
NOT_READ = (  # these do not affect the computation
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "chat_template.json",
)  # fmt: skip
READ_BELOW = ("audio_tokenizer", "whisper-large-v3")  # subfolders of a model that its class reads (MiMo, Kimi Audio)
# Values of load_format that read weights from the model's own folder.
FROM_FOLDER = (
    "auto", "hf", "safetensors", "pt", "npcache", "gguf", "mistral", "bitsandbytes", "fastsafetensors",
    "instanttensor", "runai_streamer", "runai_streamer_sharded", "sharded_state",
)  # fmt: skip
COMMIT = re.compile("[0-9a-f]{40}")
PIECE_BYTES = 16 << 20
MOST_DIGESTS = 4096  # most digests kept in the file
SETTLED_NS = 2_000_000_000  # a file that changed less than this before its reading may change unnoticed


@dataclass
class Identity:
    """parts: JSON values that name the content. why_not: a sentence if it has no such name."""

    parts: object = None
    why_not: str | None = None


class Unnamed(Exception):
    """The content has no name; the text has the reason."""


# --- files ---------------------------------------------------------------------------------------


def _state(path):
    s = os.stat(path)
    return f"{s.st_dev}:{s.st_ino}:{s.st_mtime_ns}:{s.st_ctime_ns}:{s.st_size}"


def digest_of(path):
    """SHA-256 of a file, hex. OSError, Unnamed: the file changed while it was read."""
    before, sha = _state(path), hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            sha.update(piece)
    if _state(path) != before:
        raise Unnamed(f"{path} changed while it was read")
    return sha.hexdigest()


def cache_folder(environ=os.environ):
    """The folder for digests between starts; None: this user has no home."""
    base = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "kvtier" if os.path.isabs(base) else None


class Digests:
    """Digests of files, kept in one file for all processes of a user. Without a folder that only the user can write to,
    the digests last as long as this object."""

    def __init__(self, folder=None, log=None):
        self.folder, self.log, self.known = folder, log, {}

    def of(self, paths):
        """{path: SHA-256} of files. OSError, Unnamed."""
        with self._alone() as folder:
            known = self._read(folder)
            states = {path: _state(path) for path in paths}
            fresh = [path for path in paths if states[path] not in known]
            self._announce(fresh)
            with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                made = dict(zip(fresh, pool.map(digest_of, fresh), strict=True))
            now = time.time_ns()
            keep = {states[p]: d for p, d in made.items() if os.stat(p).st_ctime_ns < now - SETTLED_NS}
            if keep:
                self._write(folder, {**known, **keep})
        return {path: made.get(path) or known[states[path]] for path in paths}

    def _announce(self, fresh):
        size = sum(os.stat(path).st_size for path in fresh)
        if self.log is not None and size > 1 << 30:
            self.log.info(
                "kvtier: reads %.1f GiB of weights to name them by content; the next start has their names from %s, "
                "and with model_version none are read", size / (1 << 30), self.folder or "nowhere")  # fmt: skip

    @contextlib.contextmanager
    def _alone(self):
        """The folder, locked, or None: there is none, or others could write to it. Ranks of one engine start together:
        one reads the files, the others use its digests."""
        file = None
        with contextlib.suppress(OSError, AttributeError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = os.stat(self.folder)
            if state.st_uid == os.getuid() and not state.st_mode & 0o022:
                file = open(self.folder / "digests.lock", "w")  # noqa: SIM115
        with file or contextlib.nullcontext():
            if file is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield self.folder if file is not None else None

    def _read(self, folder):
        if folder is None:
            return self.known
        try:
            found = json.loads((folder / "digests.json").read_text())
            return {str(state): str(digest) for state, digest in found.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def _write(self, folder, known):
        self.known = dict(list(known.items())[-MOST_DIGESTS:])
        if folder is None:
            return
        part = folder / "digests.part"
        with contextlib.suppress(OSError):
            part.write_text(json.dumps(self.known))
            os.replace(part, folder / "digests.json")


def started_ns():
    """The time when this process began, comparable with files' times: by the standard library's log, which it loads
    first of all."""
    record = logging.makeLogRecord({})
    return int((record.created - record.relativeCreated / 1000) * 1e9)


def _way_to(path):
    """Each entry that a lookup of a path passes, including those behind links. OSError."""
    os.stat(path)  # links that lead nowhere, or in a circle
    at, todo = "/", [*reversed(os.path.join(os.getcwd(), path).split("/"))]
    while todo:
        name = todo.pop()
        if name == "..":
            at = os.path.dirname(at)
        elif name not in ("", "."):
            entry = os.path.join(at, name)
            yield entry
            if os.path.islink(entry):
                target = os.readlink(entry)
                at = "/" if target.startswith("/") else at
                todo += reversed(target.split("/"))
            else:
                at = entry


def links_to(path):
    """Links on the way to a path, and on the ways to what they point to."""
    return [entry for entry in _way_to(path) if os.path.islink(entry)]


def _must_be_older(path, since_ns):
    """Raises Unnamed if an entry changed since then, so that the loaded content may differ: a file, a folder's entries,
    a link on the way, or a folder on the way that was renamed. Entries that come and go change both times of a folder,
    to the same; a rename leaves the time of its contents alone."""
    for entry in _way_to(path):
        state = os.lstat(entry)
        came = stat.S_ISLNK(state.st_mode) or state.st_mtime_ns != state.st_ctime_ns
        if came and state.st_ctime_ns > since_ns:
            raise Unnamed(f"{entry} changed after the engine started to load {path}")
    if os.stat(path).st_ctime_ns > since_ns:
        raise Unnamed(f"{path} changed after the engine started to load it")


def files_of(folder):
    """Files in a folder that affect the computation of a model or an adapter."""
    return [
        f for f in sorted(pathlib.Path(folder).iterdir())
        if f.suffix in WEIGHTS or (f.suffix in DESCRIBING and f.name not in NOT_READ)
    ]  # fmt: skip


def describe_folder(folder, digests, since_ns):
    """{name: [size, SHA-256]} of the files in a folder. OSError; Unnamed: one of them is newer than since_ns, or there
    are no weights."""
    folder = pathlib.Path.cwd() / folder
    files = files_of(folder)
    if not any(f.suffix in WEIGHTS for f in files):
        raise Unnamed(f"{folder} has no weights that are known ({', '.join(WEIGHTS)})")
    found = digests.of(files)
    for path in (folder, *files):  # after they were read: files that changed meanwhile are newer, too
        _must_be_older(path, since_ns)
    return {f.name: [os.stat(f).st_size, found[f]] for f in files}


def describe_model(folder, digests, since_ns):
    """Like describe_folder, with its subfolders that classes of models read implicitly."""
    found = describe_folder(folder, digests, since_ns)
    for name in READ_BELOW:
        if (folder / name).is_dir():
            found[name] = describe_folder(folder / name, digests, since_ns)
    return found


# --- the Hugging Face hub's cache ----------------------------------------------------------------


def hub_folder(environ=os.environ):
    """The folder where the hub's client keeps snapshots."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return pathlib.Path(environ[name]).expanduser()
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    home = environ.get("HF_HOME") or os.path.join(cache, "huggingface")
    return pathlib.Path(home).expanduser() / "hub"


def _commit(source, folder, since_ns):
    """Commit of the snapshot that the engine loaded."""
    commit = source.revision or "main"
    if COMMIT.fullmatch(commit):
        return commit
    ref = folder / "refs" / commit
    try:
        commit = ref.read_text().strip()
    except OSError:
        raise Unnamed(f"no snapshot of {source.model} is in {folder.parent}") from None
    if [one.name for one in (folder / "snapshots").iterdir()] != [commit]:  # else the engine may have downloaded it
        _must_be_older(ref, since_ns)
    return commit


def _is_as_named(file, digests):
    """Returns whether the target of a link in a snapshot has the digest in its blob's name: its SHA-256, Git's digest
    of small files, or (mirrors) SHA-1; True for names of other kinds."""
    blob = os.path.basename(os.path.realpath(file))
    if re.fullmatch("[0-9a-f]{64}", blob):
        return digests.of([file])[file] == blob
    if not COMMIT.fullmatch(blob):
        return True
    content = file.read_bytes()
    return blob in [hashlib.sha1(head + content).hexdigest() for head in (b"blob %d\0" % len(content), b"")]


def _edited(snapshot, digests, since_ns):
    """{name: SHA-256} of files in a snapshot that differ from its commit's. Weights are read if they were written after
    the link to them was made, which a download makes last."""
    files = [f for f in sorted(snapshot.rglob("*")) if f.suffix in (*WEIGHTS, *DESCRIBING) and f.is_file()]
    if not any(f.is_symlink() for f in files):
        return {}  # a file system without links: no blob shows the original contents
    found = {}
    for file in files:
        late = file.suffix in DESCRIBING or os.stat(file).st_mtime_ns > os.lstat(file).st_mtime_ns
        if not file.is_symlink() or (late and not _is_as_named(file, digests)):
            found[str(file.relative_to(snapshot))] = digests.of([file])[file]
            _must_be_older(file, since_ns)
    return found


def _snapshot(source, hub, digests, since_ns):
    """{commit, kind of files} of a model in the hub's cache, and its files that a user changed."""
    folder = hub / ("models--" + source.model.replace("/", "--"))
    commit = _commit(source, folder, since_ns)
    snapshot = folder / "snapshots" / commit
    names = {f.suffix for f in snapshot.iterdir()} if COMMIT.fullmatch(commit) and snapshot.is_dir() else set()
    kind = next((suffix for suffix in WEIGHTS if suffix in names), None)
    if kind is None:
        raise Unnamed(f"{snapshot} has no weights")
    edited = _edited(snapshot, digests, since_ns)
    return {"commit": commit, "files": kind} | ({"edited": edited} if edited else {})


# --- a model -------------------------------------------------------------------------------------


@dataclass
class Source:
    """The source of an engine's weights; members by vLLM's names."""

    model: str
    revision: str | None = None
    load_format: str = "auto"
    download_dir: str | None = None
    stored_at: str = ""  # model_weights: an address from which files are read while the engine loads
    config_path: str = ""  # hf_config_path: source of the configuration, if not the model
    config: object = None  # the engine's, JSON values: perhaps read from other files than today's


def _describe(source, digests, since_ns, environ):
    if source.stored_at:
        raise Unnamed(f"its weights come from {source.stored_at}")
    if source.load_format not in FROM_FOLDER:
        raise Unnamed(f"load_format {source.load_format} does not read the model's own files")
    path = pathlib.Path.cwd() / source.model  # ".." stays: behind a link it leads elsewhere
    if source.config_path and source.config_path != source.model:
        raise Unnamed(f"its configuration comes from {source.config_path}")
    if path.is_dir():
        return describe_model(path, digests, since_ns)
    if path.is_file():
        found = digests.of([path])
        _must_be_older(path, since_ns)
        return {"file": [os.stat(path).st_size, found[path]]}
    if "://" in source.model:
        raise Unnamed(f"its weights come from {source.model}")
    if environ.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
        raise Unnamed(f"{source.model} comes from ModelScope")
    hub = pathlib.Path(source.download_dir) if source.download_dir else hub_folder(environ)
    return _snapshot(source, hub, digests, since_ns)


def identify(sources, digests, since_ns, environ=os.environ):
    """Identity of an engine's loaded weights: its model's, and a draft model's if there is one. since_ns: when this
    process began."""
    parts = []
    for source in sources:
        try:
            parts.append([source.load_format, _describe(source, digests, since_ns, environ), source.config])
        except (OSError, Unnamed) as error:
            return Identity(None, f"{source.model}: {error}")
    return Identity(parts)
