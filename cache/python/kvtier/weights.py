"""What the engine loaded, named by content.

A chunk outlives the engine that stored it, on NVMe or in a shared tier, and a name such as `org/model` or `/models/m`
says nothing about the weights that lie behind it today. So the fingerprint has SHA-256 of local files, or the commit
of a snapshot in the Hugging Face hub's cache. Where neither is known (object storage, formats that load from
elsewhere, files that changed while the engine started) Identity.why_not says why: then nothing may be shared with
another process, unless the user names the weights by `model_version`.

Reading weights takes as long as the disk needs; digests are kept in a file of the user's own cache folder, by device,
inode, times and size of each file, so that it happens once on a machine.
"""

import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import stat
import time
from dataclasses import dataclass

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
DESCRIBING = (".json", ".py")  # configuration, and code that is loaded with the model
NOT_READ = (  # they do not decide what tokens compute to
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "chat_template.json",
)  # fmt: skip
READ_BELOW = ("audio_tokenizer",)  # folders in a model's that its class reads (MiMo Audio)
# Values of load_format that read weights from the model's own folder.
FROM_FOLDER = (
    "auto", "hf", "safetensors", "pt", "npcache", "gguf", "mistral", "bitsandbytes", "fastsafetensors",
    "instanttensor", "runai_streamer", "runai_streamer_sharded", "sharded_state",
)  # fmt: skip
COMMIT = re.compile("[0-9a-f]{40}")
PIECE_BYTES = 16 << 20
MOST_DIGESTS = 4096  # kept in the file
MOST_READ = 16 << 20  # of files in a hub's snapshot that describe a model, at each start
SETTLED_NS = 2_000_000_000  # a file that changed later than this before it was read may change unseen


@dataclass
class Identity:
    """parts: JSON values that name the content. why_not: a sentence if it has no such name."""

    parts: object = None
    why_not: str | None = None


class Unnamed(Exception):
    """The content has no name; the text says why."""


# --- files ---------------------------------------------------------------------------------------


def _state(path):
    s = os.stat(path)
    return f"{s.st_dev}:{s.st_ino}:{s.st_mtime_ns}:{s.st_ctime_ns}:{s.st_size}"


def digest_of(path):
    """SHA-256 of a file, hex. OSError, Unnamed: it changed while it was read."""
    before, sha = _state(path), hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            sha.update(piece)
    if _state(path) != before:
        raise Unnamed(f"{path} changed while it was read")
    return sha.hexdigest()


def cache_folder(environ=os.environ):
    """Where digests are kept between starts; None: this user has no home."""
    base = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "kvtier" if os.path.isabs(base) else None


class Digests:
    """Digests of files, kept in one file for all processes of a user. Without a folder that only the user can write to
    they are kept for this object's life."""

    def __init__(self, folder=None, log=None):
        self.folder, self.log, self.known = folder, log, {}

    def of(self, paths):
        """{path: SHA-256} of files. OSError, Unnamed."""
        with self._alone():
            self.known = self._read()
            states = {path: _state(path) for path in paths}
            fresh = [path for path in paths if states[path] not in self.known]
            self._announce(fresh)
            with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                made = dict(zip(fresh, pool.map(digest_of, fresh), strict=True))
            found = {path: made.get(path) or self.known[states[path]] for path in paths}
            now = time.time_ns()
            keep = {states[p]: d for p, d in made.items() if os.stat(p).st_ctime_ns < now - SETTLED_NS}
            if keep:
                self._write({**self.known, **keep})
        return found

    def _announce(self, fresh):
        size = sum(os.stat(path).st_size for path in fresh)
        if self.log is not None and size > 1 << 30:
            self.log.info(
                "kvtier: reads %.1f GiB of weights to name them by content; the next start has their names from %s, "
                "and with model_version none are read", size / (1 << 30), self.folder or "nowhere")  # fmt: skip

    def _own(self):
        """The folder, made if it is missing; None: others could write to it."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = os.stat(self.folder)
        except OSError:
            return None
        return self.folder if state.st_uid == os.getuid() and not state.st_mode & 0o022 else None

    @contextlib.contextmanager
    def _alone(self):
        """Ranks of one engine start together: one reads, the others have its digests."""
        folder = self._own() if self.folder is not None else None
        try:
            file = open(folder / "digests.lock", "w") if folder is not None else None  # noqa: SIM115
        except OSError:
            file = None
        with file or contextlib.nullcontext():
            if file is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self):
        if self.folder is None or self._own() is None:
            return self.known
        try:
            found = json.loads((self.folder / "digests.json").read_text())
            return {str(state): str(digest) for state, digest in found.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def _write(self, known):
        self.known = dict(list(known.items())[-MOST_DIGESTS:])
        if self.folder is None or self._own() is None:
            return
        part = self.folder / "digests.part"
        with contextlib.suppress(OSError):
            part.write_text(json.dumps(self.known))
            os.replace(part, self.folder / "digests.json")


def _process(pid):
    """(start in ns as files' times are, its parent's id, its command line, its program). OSError."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
        command = file.read()
    ago_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - ago_ns, int(fields[1]), command, os.readlink(f"/proc/{pid}/exe")


def started_ns():
    """When this process began, as files' times are."""
    return _process("self")[0]


def _is_made(command, parents_command):
    """Whether a Python process was made by its parent's multiprocessing, by its command line: as vLLM titles it, as
    multiprocessing starts it, or its parent's, if it is a fork."""
    title = os.environ.get("VLLM_PROCESS_NAME_PREFIX", "VLLM") + "::"
    made = command.startswith((title + "EngineCore", title + "Worker")) or "multiprocessing" in command
    return made or command == parents_command


def began_ns():
    """When the first of the processes began that this one comes from by multiprocessing: a worker's engine core, and the
    server that read the model's configuration before both. None: it is not there any more."""
    began, parent, command, program = _process("self")
    made = multiprocessing.parent_process() is not None
    try:
        while parent > 0:
            older, grandparent, parents_command, parents_program = _process(parent)
            if program != parents_program or not (made or _is_made(command, parents_command)):
                break
            began, parent, command, made = min(began, older), grandparent, parents_command, False
    except OSError:
        pass
    return None if made else began


MOST_LINKS = 40  # as Linux's own limit


def _way_to(path):
    """(folder, entry) of each entry that is looked up on the way to a path, those that links lead to as well."""
    at, todo, links = "/", [*reversed(os.path.join(os.getcwd(), path).split("/"))], 0
    while todo:
        name = todo.pop()
        if name == "..":
            at = os.path.dirname(at)
        elif name not in ("", "."):
            entry = os.path.join(at, name)
            yield at, entry
            if not os.path.islink(entry):
                at = entry
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = os.readlink(entry)
            at = "/" if target.startswith("/") else at
            todo += reversed(target.split("/"))


def links_to(path):
    """Links on the way to a path, and on the ways to what they point to."""
    return [entry for _, entry in _way_to(path) if os.path.islink(entry)]


def _may_be_renamed(folder, state, since_ns):
    """Of a folder on the way that changed: may another one have stood there before? A rename is seen by the times of what
    is renamed and of the folder that it happens in. Files that come and go in a folder change its times, too: both of
    them, to the same, and a rename leaves the time of contents alone."""
    if state.st_mtime_ns == state.st_ctime_ns:
        return False
    return os.stat(folder).st_ctime_ns > since_ns


def _must_be_older(path, since_ns):
    """What changed since the engine began to load may be something else than it loaded: a file, a folder's entries, a
    link on the way, or a folder on the way that another was renamed to."""
    if since_ns is None:
        raise Unnamed("when the engine read its configuration is not known")
    for folder, entry in _way_to(path):
        state = os.lstat(entry)
        if state.st_ctime_ns <= since_ns:
            continue
        if stat.S_ISLNK(state.st_mode):
            raise Unnamed(f"{entry} changed after the engine started to load it")
        if _may_be_renamed(folder, state, since_ns):
            raise Unnamed(f"{entry} changed after the engine started to load {path}, and may be another than before")
    if os.stat(path).st_ctime_ns > since_ns:
        raise Unnamed(f"{path} changed after the engine started to load it")


def files_of(folder):
    """Files in a folder that decide what a model or an adapter computes."""
    return [
        f for f in sorted(pathlib.Path(folder).iterdir())
        if f.suffix in WEIGHTS or (f.suffix in DESCRIBING and f.name not in NOT_READ)
    ]  # fmt: skip


def describe_folder(folder, digests, since_ns, patterns=()):
    """{name: [size, SHA-256]} of the files that lie in a folder, and fit patterns if they are not named like weights.
    OSError; Unnamed: one of them is newer than since_ns, or there are no weights."""
    folder = pathlib.Path.cwd() / folder
    files = sorted({*files_of(folder), *(f for pattern in patterns for f in folder.glob(pattern))})
    if not patterns and not any(f.suffix in WEIGHTS for f in files):
        raise Unnamed(f"{folder} has no weights that are known ({', '.join(WEIGHTS)})")
    found = digests.of(files)
    for path in (folder, *files):  # after they were read: what changed meanwhile is newer, too
        _must_be_older(path, since_ns)
    return {f.name: [os.stat(f).st_size, found[f]] for f in files}


def describe_model(folder, digests, since_ns, patterns=()):
    """As describe_folder, with the folders in it that classes of models read without saying so."""
    found = describe_folder(folder, digests, since_ns, patterns)
    for name in READ_BELOW:
        if (folder / name).is_dir():
            found[name] = describe_folder(folder / name, digests, since_ns)
    return found


# --- the Hugging Face hub's cache ----------------------------------------------------------------


def hub_folder(environ=os.environ):
    """Where the hub's client keeps snapshots."""
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
    # The reference may have moved since the engine read it. Its configuration says what it was then, in some versions of
    # transformers; or it is older than the engine, or there is one snapshot that it can have loaded.
    if source.config_commit is not None and commit != source.config_commit:
        raise Unnamed(
            f"{source.model} is at commit {commit} in {folder.parent}, its configuration was loaded from "
            f"{source.config_commit}"
        )
    if source.config_commit is None and [one.name for one in (folder / "snapshots").iterdir()] != [commit]:
        for at in (folder, ref):
            if since_ns is None or os.stat(at).st_ctime_ns > since_ns:
                raise Unnamed(f"{at} changed after the engine started to load it, or nothing says when that was")
    return commit


def _is_as_named(path, blob, digests):
    """Whether a file is what its blob's name says: its SHA-256, Git's digest, or (mirrors) SHA-1; True for names of other
    kinds."""
    if re.fullmatch("[0-9a-f]{64}", blob):
        return digests.of([path])[path] == blob
    if COMMIT.fullmatch(blob):
        both = hashlib.sha1(b"blob %d\0" % os.stat(path).st_size), hashlib.sha1()
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                for sha in both:
                    sha.update(piece)
        return blob in [sha.hexdigest() for sha in both]
    return True


def _edited(snapshot, digests, since_ns):
    """{name: [size, SHA-256]} of files in a snapshot that are others than its commit's: a commit does not name them. Small
    ones are read; weights if they were written after the link to them was made, which a download makes last."""
    files = [f for f in sorted(snapshot.rglob("*")) if f.suffix in (*WEIGHTS, *DESCRIBING) and f.is_file()]
    if not any(f.is_symlink() for f in files):
        return {}  # a file system without links: no blob says what they were
    found = {}
    for file in files:
        now, link = os.stat(file), os.lstat(file)
        large = file.suffix in WEIGHTS or now.st_size > MOST_READ
        if file.is_symlink():
            if large and now.st_mtime_ns <= link.st_mtime_ns:
                continue
            if _is_as_named(file, os.path.basename(os.path.realpath(file)), digests):
                continue
        name = str(file.relative_to(snapshot))
        found[name] = [now.st_size, digests.of([file])[file]]
        _must_be_older(file, since_ns)
    return found


def _snapshot(source, hub, digests, since_ns):
    """{commit, kind of files} of a model in the hub's cache, and files in it that a user changed."""
    folder = hub / ("models--" + source.model.replace("/", "--"))
    commit = _commit(source, folder, since_ns)
    snapshot = folder / "snapshots" / commit
    lies_in = snapshot / source.subfolder
    names = {f.suffix for f in lies_in.iterdir()} if COMMIT.fullmatch(commit) and lies_in.is_dir() else set()
    kind = next((suffix for suffix in WEIGHTS if suffix in names), None)
    if kind is None:
        raise Unnamed(f"{snapshot} has no weights")
    edited = _edited(snapshot, digests, since_ns)
    return {"commit": commit, "files": kind} | ({"edited": edited} if edited else {})


# --- a model -------------------------------------------------------------------------------------


@dataclass
class Source:
    """Where an engine's weights come from; members as vLLM calls them."""

    model: str
    revision: str | None = None
    load_format: str = "auto"
    download_dir: str | None = None
    stored_at: str = ""  # model_weights: an address that files are read from while the engine loads
    config_path: str = ""  # hf_config_path: where the configuration comes from, if not from the model
    config_commit: str | None = None  # of the hub's snapshot that the configuration came from
    subfolder: str = ""
    patterns: tuple = ()  # of files that are weights, whatever their names end in


def _describe(source, digests, since_ns, environ):
    if source.stored_at:
        raise Unnamed(f"its weights come from {source.stored_at}")
    if source.load_format not in FROM_FOLDER:
        raise Unnamed(f"load_format {source.load_format} does not read the model's own files")
    path = pathlib.Path.cwd() / source.model  # ".." stays: it leads elsewhere behind a link
    if source.config_path and source.config_path != source.model:
        raise Unnamed(f"its configuration comes from {source.config_path}")
    if path.is_dir():
        return describe_model(path / source.subfolder, digests, since_ns, source.patterns)
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
    """Identity of what an engine loaded: its model, and a draft model if there is one."""
    parts = []
    for source in sources:
        try:
            parts.append([source.load_format, _describe(source, digests, since_ns, environ)])
        except (OSError, Unnamed) as error:
            return Identity(None, f"{source.model}: {error}")
    return Identity(parts)
