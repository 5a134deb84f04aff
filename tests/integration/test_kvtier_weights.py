"""Weights and LoRA adapters, named by content; and weights that are updated in place."""

import enum
import hashlib
import json
import pathlib
import socket
import threading
import time
import types

import pytest

from rig.kvtier_plan import BLOCK, name, output_of, plan, request_of, store_all  # noqa: F401
from rig.router import BUILD
from rig.wait import until, unused_port

IMPORTED = time.time_ns()
from kvtier import adapters, changes, fingerprint, library, settings, weights  # noqa: E402

LIBRARY = BUILD / "cache" / "core" / "libkvtier.so.1"


def model_in(folder, content=b"w" * 5_000_000):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    return folder


def identify(model, since_ns=None, digests=None, environ=None, **more):
    source = weights.Source(str(model), **more)
    since_ns = time.time_ns() if since_ns is None else since_ns
    return weights.identify([source], digests or weights.Digests(), since_ns, environ or {})


def test_the_fingerprint_changes_with_every_part(tmp_path):
    folder, seen = model_in(tmp_path), set()
    for change in (None, ("config.json", b"{ }"), ("model.safetensors", b"w" * 101), ("modeling.py", b"pass")):
        if change:
            (folder / change[0]).write_bytes(change[1])
        seen.add(fingerprint.make({"model": identify(folder).parts, "block": 16}))
    (folder / "tokenizer.json").write_text("{}")  # decides nothing
    seen.add(fingerprint.make({"model": identify(folder).parts, "block": 16}))
    seen.add(fingerprint.make({"model": identify(folder).parts, "block": 32}))
    assert len(seen) == 5 and all(len(one) == 64 for one in seen)


def test_one_changed_byte_of_the_weights_is_another_model(tmp_path):
    content = bytearray(5_000_000)
    one = identify(model_in(tmp_path, content)).parts
    content[1_234_567] = 1
    other = identify(model_in(tmp_path, content)).parts
    assert None not in (one, other) and one != other


def test_another_folder_with_the_same_content_is_the_same_model(tmp_path):
    assert identify(model_in(tmp_path / "a")).parts == identify(model_in(tmp_path / "b")).parts


def test_a_single_file_is_named_by_content(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one")
    one = identify(path, load_format="gguf").parts
    path.write_bytes(b"two")  # new weights under the old name
    two = identify(path, load_format="gguf").parts
    assert None not in (one, two) and one != two


def hub_with(home, commit, model="org/m", ref="main"):
    folder = home / "hub" / ("models--" + model.replace("/", "--"))
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / ref).write_text(commit)
    model_in(folder / "snapshots" / commit)
    return {"HF_HOME": str(home)}


def test_a_hub_model_is_named_by_the_commit_of_its_snapshot(tmp_path):
    old, new = "a" * 40, "b" * 40
    environ = hub_with(tmp_path, old)
    one = identify("org/m", environ=environ)
    assert old in json.dumps(one.parts)
    assert identify("org/m", environ=environ, since_ns=0).parts == one.parts  # the engine downloaded it: no other is there
    before = later()
    hub_with(tmp_path, new)  # the same name has other weights from now on
    assert "refs/main changed after" in identify("org/m", before, environ=environ).why_not  # nothing says what was loaded
    two = identify("org/m", later(), environ=environ)  # it was this one all the time
    assert two.parts is not None and two.parts != one.parts
    assert identify("org/m", environ=environ, revision=old).parts == one.parts
    assert identify("org/m", download_dir=str(tmp_path / "hub"), revision=new).parts == two.parts


def linked(home, commit, **files):
    """A snapshot as the hub's client makes it: links to blobs that are named by their content."""
    environ = hub_with(home, commit)
    snapshot = next((home / "hub").glob(f"*/snapshots/{commit}"))
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir(exist_ok=True)
    for name, content in {"config.json": b"{}", "model.safetensors": b"w" * 1000, **files}.items():
        git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        blob = blobs / (git if name.endswith(".json") else hashlib.sha256(content).hexdigest())
        blob.write_bytes(content)
        (snapshot / name).unlink(missing_ok=True)
        (snapshot / name).symlink_to(pathlib.Path("../../blobs") / blob.name)
    return environ, snapshot


def test_files_that_a_user_changed_in_a_snapshot_of_the_hub(tmp_path, monkeypatch):
    """Its commit says nothing of them."""
    commit, read = "a" * 40, []
    environ, snapshot = linked(tmp_path, commit)
    whole = weights.digest_of
    monkeypatch.setattr(weights, "digest_of", lambda path: read.append(path) or whole(path))

    def name(since_ns=None):
        return identify("org/m", since_ns or later(), environ=environ)

    plain = ["auto", {"commit": commit, "files": ".safetensors"}, None]
    assert name(1).parts == [plain] and read == []  # downloaded by the engine; large files are not read
    for file, content in (("config.json", b"{ }"), ("model.safetensors", b"v" * 1000)):  # in place: the blob is another
        before = later()
        (snapshot / file).write_bytes(content)
        found = name()
        assert found.parts[0][1]["edited"][file] == hashlib.sha256(content).hexdigest()
        assert f"{file} changed after the engine started" in name(before).why_not
        linked(tmp_path, commit)
        assert name(1).parts == [plain]
    later()
    (snapshot / "model.safetensors").write_bytes(b"w" * 1000)  # the same once more, as a download that is forced
    read.clear()
    assert name(1).parts == [plain] and len(read) == 1
    (snapshot / "config.json").unlink()  # as editors save: a file in place of the link
    (snapshot / "config.json").write_text("{}")
    assert list(name().parts[0][1]["edited"]) == ["config.json"]


@pytest.mark.parametrize(
    "model, more, says",
    [
        ("org/none", {}, "no snapshot of org/none is in"),
        ("s3://bucket/m", {}, "its weights come from s3://bucket/m"),
        ("/tmp", {"stored_at": "s3://bucket/m"}, "its weights come from s3://bucket/m"),
        ("/tmp", {"config_path": "org/m"}, "its configuration comes from org/m"),
        ("/tmp", {"load_format": "dummy"}, "load_format dummy does not read"),
        ("/tmp", {"load_format": "tensorizer"}, "load_format tensorizer does not read"),
    ],
)
def test_weights_without_a_name_by_content(model, more, says, tmp_path):
    found = identify(model, environ={"HF_HOME": str(tmp_path)}, **more)
    assert found.parts is None and says in found.why_not


def test_files_that_changed_after_the_engine_began_to_load_them(tmp_path):
    folder, link = model_in(tmp_path / "a"), tmp_path / "link"
    began = time.time_ns()
    time.sleep(0.02)
    link.symlink_to(folder)
    assert identify(folder, began).parts is not None
    assert "changed after the engine started" in identify(link, began).why_not  # it pointed elsewhere before
    (folder / "model.safetensors").write_bytes(b"new")
    assert "model.safetensors changed after the engine started" in identify(folder, began).why_not
    assert "has no weights" in identify(tmp_path, began).why_not


def test_another_folder_or_file_that_was_renamed_to_the_models_name(tmp_path):
    """Neither files nor links change by it: the folder on the way does, and the folder that it lies in."""
    for name in ("m", "m.new"):
        model_in(tmp_path / name / "deep" / "er", name.encode())
        (tmp_path / name / "w.gguf").write_bytes(name.encode())
    paths = tmp_path / "m" / "deep" / "er", tmp_path / "m" / "w.gguf"
    began = later()
    model_in(tmp_path / "another")  # the folder of folders changes all the time
    assert all(identify(path, began).why_not is None for path in paths)
    (tmp_path / "m" / "notes").write_text("")
    (tmp_path / "m").rename(tmp_path / "m.old")
    (tmp_path / "m.new").rename(tmp_path / "m")
    for path in paths:
        assert f"{tmp_path / 'm'} changed after the engine started" in identify(path, began).why_not
    assert identify(tmp_path / "another" / ".." / "m" / "w.gguf", time.time_ns()).why_not is None


def test_files_that_come_and_go_beside_the_way_to_a_model(tmp_path):
    """As in a new container: the engine, and this library, make folders in ~/.cache and in ~ at their start."""
    folder = model_in(tmp_path / "home" / ".cache" / "huggingface" / "hub" / "models--org--m" / "snapshots" / "sha")
    began = later()
    for name in (".cache/huggingface/modules", ".cache/kvtier", ".config", ".triton"):
        (tmp_path / "home" / name).mkdir()
    (tmp_path / "logs").write_text("")
    assert identify(folder, began).why_not is None
    later()
    (tmp_path / "home" / ".cache").rename(tmp_path / "home" / "old")
    (tmp_path / "home" / "old").rename(tmp_path / "home" / ".cache")
    assert "home/.cache changed after the engine started" in identify(folder, began).why_not


def later():
    """A time that all before this call is older than, and what follows it younger, to files as well."""
    time.sleep(0.02)
    now = time.time_ns()
    time.sleep(0.02)
    return now


def test_links_are_followed_as_the_kernel_does(tmp_path):
    real = model_in(tmp_path / "real" / "m")
    (tmp_path / "at" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "at" / "deep")
    began = later()
    (tmp_path / "at" / "m").symlink_to("../real/m")
    way = list(weights._way_to(tmp_path / "link" / ".." / "m"))
    assert way[-1] == str(real) and str(tmp_path / "at" / "m") in way
    assert "at/m changed after the engine started" in identify(tmp_path / "link" / ".." / "m", began).why_not
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="round"):
        list(weights._way_to(tmp_path / "round"))


def test_the_configuration_that_the_engine_has_is_part_of_the_name(tmp_path):
    """The server reads it before the process that loads the weights begins."""
    folder = model_in(tmp_path)
    names = [json.dumps(identify(folder, config=config).parts) for config in ({"rope": 1}, {"rope": 2}, {"rope": 1})]
    assert names[0] == names[2] != names[1]


def test_a_process_knows_when_it_began():
    """Not when this package was imported: by then the engine has loaded weights."""
    assert weights.started_ns() < IMPORTED


def test_digests_are_made_once_for_all_processes(tmp_path, monkeypatch):
    folder = model_in(tmp_path / "m")
    read = []
    whole = weights.digest_of
    monkeypatch.setattr(weights, "digest_of", lambda path: read.append(path) or whole(path))
    monkeypatch.setattr(weights, "SETTLED_NS", 0)
    first = identify(folder, digests=weights.Digests(tmp_path / "cache")).parts
    assert len(read) == 2
    assert identify(folder, digests=weights.Digests(tmp_path / "cache")).parts == first and len(read) == 2
    (folder / "model.safetensors").write_bytes(b"v" * 5_000_000)
    assert identify(folder, digests=weights.Digests(tmp_path / "cache")).parts != first and len(read) == 3
    (tmp_path / "cache").chmod(0o777)  # others could have written to it
    identify(folder, digests=weights.Digests(tmp_path / "cache"))
    assert len(read) == 5


def test_a_file_that_changed_just_now_is_read_again(tmp_path, monkeypatch):
    """Its times may not change with the next write."""
    assert weights.SETTLED_NS >= 1_000_000_000
    monkeypatch.setattr(weights, "SETTLED_NS", 3600 * 10**9)
    digests = weights.Digests(tmp_path / "cache")
    identify(model_in(tmp_path / "m"), digests=digests)
    assert not (tmp_path / "cache" / "digests.json").exists()


def test_only_memory_is_left_open_for_weights_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    given = {"l1": {"capacity": "16MiB"}, "nvme": {"path": str(tmp_path), "capacity": "64MiB"}}
    assert settings.outlives(json.dumps(given)) and settings.outlives(json.dumps({"l2": {"url": "redis://x"}}))
    assert settings.outlives("nvme:\n  path: /x\n")
    assert not settings.outlives('{"l1": {"capacity": "16MiB"}}') and not settings.outlives("l1:\n  capacity: 1GiB")
    assert settings.outlives('{"node": {"share": "auto"}}') and settings.outlives("node: {share: always}")
    assert not settings.outlives('{"node": {"share": "never", "url": "kvtierd://127.0.0.1:9200"}}')
    given["node"] = {"share": "always"}
    one = library.Cache([json.dumps(given), json.dumps(settings.MEMORY_ONLY)])
    assert 'kvtier_tier_state{tier="l2"} 0' in one.metrics() or 'tier="l2"' not in one.metrics()
    assert one.mistakes == "" and list(tmp_path.iterdir()) == []
    one.close()


# --- adapters -------------------------------------------------------------------------------------


def adapter(folder, content, number=1, **more):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(content)
    time.sleep(0.02)  # the engine loads it later than this
    return types.SimpleNamespace(lora_name=folder.name, lora_path=str(folder), lora_int_id=number, **more)


def digested(known):
    until(lambda: known.quiet() and all(one.over.is_set() for one in list(known.known.values())), 10, "adapters read")


def asked_for(plan, request_id, lora):
    """Names that are asked for a request with this adapter; none: it is not cached."""
    before = plan.asker.number
    plan.matched(request_of(8, request_id=request_id, lora_request=lora), 0)
    return plan.asker.asked[-1] if plan.asker.number > before else []


class FakeEngine:
    """As changes.Engine."""

    def __init__(self, keeps=False):
        self.live, self.drops, self.keeps = [], 0, keeps

    def requests(self):
        return self.live

    def drop_blocks(self):
        if self.keeps:
            raise RuntimeError("no")
        self.drops += 1


def hashed(request_id, lora, **more):
    """A request whose hashes its cache salt changes."""
    made = request_of(8, request_id=request_id, lora_request=lora, cache_salt=None, **more)

    def update():
        salt = (made.cache_salt or "").encode()
        made.block_hashes += [hashlib.sha256(name(n) + salt).digest() for n in range(8)]

    made.block_hashes, made.update_block_hashes = [], update
    update()
    return made


def in_place(lora, **more):
    return types.SimpleNamespace(**{**vars(lora), "load_inplace": True, **more})


def load(plan, lora):
    plan.adapters.loaded(lora)
    digested(plan.adapters)
    return lora


def test_names_differ_by_what_an_adapter_is(plan, tmp_path):
    """The engine's hash has its name and path; another adapter at the same path is another one."""
    big = bytes(1 << 20)
    lora = adapter(tmp_path / "a", big)
    plan.adapters.loaded(lora)
    digested(plan.adapters)
    stores = store_all(plan, request_of(8, request_id="r1", lora_request=lora), 8)
    assert [s.lora for s in stores] == ["a", "a"] and stores[0].hashes == [name(n) for n in range(4)]
    assert stores[1].parent == stores[0].name
    names = {s.name for s in stores}
    assert len(names) == 2 and not names & {name(3), name(7)}
    assert set(asked_for(plan, "r2", lora)) == names  # what is stored is asked for
    plan.adapters.engine = FakeEngine()
    changed = adapter(tmp_path / "a", big[:700_000] + b"\1" * (len(big) - 700_000), number=2)
    plan.adapters.loaded(changed)
    digested(plan.adapters)
    others = asked_for(plan, "r3", changed)
    assert len(others) == 2 and not set(others) & names
    plan.matched(request_of(8, request_id="r4"), 0)
    assert plan.asker.asked[-1] == [name(3), name(7)]


def test_an_adapter_is_digested_when_it_is_loaded_not_by_requests(plan, tmp_path, monkeypatch):
    """The engine core's thread looks at no file."""
    lora, core = adapter(tmp_path / "a", b"w"), threading.get_ident()

    def looked(path):
        assert threading.get_ident() != core
        return real(path)

    real = weights.files_of
    monkeypatch.setattr(weights, "files_of", looked)
    plan.adapters.loaded(lora)
    assert asked_for(plan, "r0", lora) == [] or plan.adapters.quiet()  # not there yet: it is computed
    digested(plan.adapters)
    for number in range(20):
        assert len(asked_for(plan, f"q{number}", lora)) == 2


def test_files_that_changed_after_an_adapter_was_loaded(plan, tmp_path, monkeypatch):
    """The engine has the old ones: neither their names nor those of the new ones fit what it computes."""
    monkeypatch.setattr(adapters.Adapters, "LOOK_S", 0.02)
    plan.adapters.engine = FakeEngine()
    lora = adapter(tmp_path / "a", b"old")
    plan.adapters.loaded(lora)
    adapter(tmp_path / "a", b"new")  # perhaps before they are read
    until(lambda: plan.adapters.quiet() and asked_for(plan, f"r{time.time()}", lora) == [], 10, "not cached")
    replaced = types.SimpleNamespace(**{**vars(lora), "load_inplace": True})
    plan.adapters.loaded(replaced)
    digested(plan.adapters)
    request = request_of(8, request_id="running", lora_request=replaced)
    plan.matched(request, 0)
    assert len(asked_for(plan, "q", replaced)) == 2
    plan.adapters.loaded(replaced)  # in place, under requests that run
    digested(plan.adapters)
    new = [("running", list(range(8)), 0)]
    assert plan.step(output_of(new=new, scheduled={"running": 8 * BLOCK}))[1] == []
    assert len(asked_for(plan, "later", replaced)) == 2
    plan.adapters.unloaded(1)
    assert plan.adapters.known == {}


def test_blocks_of_an_adapter_that_was_replaced_go_with_it(plan, tmp_path):
    """The engine would find its own blocks of the old files under the same hashes, and compute after them."""
    plan.adapters.engine = engine = FakeEngine()
    lora = load(plan, adapter(tmp_path / "a", b"old"))
    old = {s.name for s in store_all(plan, hashed("r0", lora), 8)}
    running, stranger = hashed("running", lora), hashed("stranger", None)
    engine.live = [running, stranger]
    plan.matched(running, 0)
    plan.step(output_of(new=[("running", list(range(8)), 0)], scheduled={"running": BLOCK}))
    adapter(tmp_path / "a", b"new")
    changed = load(plan, in_place(lora))
    assert engine.drops == 1
    assert running.block_hashes != stranger.block_hashes == hashed("like it", None).block_hashes
    later = output_of(cached=[("running", None, BLOCK)], scheduled={"running": 7 * BLOCK})
    assert plan.step(later)[1] == []
    new = {s.name for s in store_all(plan, hashed("r1", changed), 8)}
    assert len(old) == len(new) == 2 and not old & new
    load(plan, in_place(changed))  # the same files
    assert engine.drops == 1 and len(asked_for(plan, "r2", changed)) == 2


def test_an_adapter_whose_old_blocks_the_engine_keeps_is_not_cached_before_it_is_emptied(plan, tmp_path):
    plan.adapters.engine = engine = FakeEngine(keeps=True)
    lora = load(plan, adapter(tmp_path / "a", b"old"))
    assert len(store_all(plan, hashed("r0", lora), 8)) == 2
    adapter(tmp_path / "a", b"new")
    changed = load(plan, types.SimpleNamespace(**{**vars(lora), "lora_int_id": 2}))
    assert asked_for(plan, "r1", changed) == [] and store_all(plan, hashed("r2", changed), 8) == []
    load(plan, in_place(changed))  # it is the same, and the old blocks are there still
    assert store_all(plan, hashed("r3", changed), 8) == []
    late = hashed("late", lora)  # another server has the old one still
    plan.adapters.keep_apart(late)
    assert late.block_hashes != hashed("like it", lora).block_hashes and store_all(plan, late, 8) == []
    plan.engine_forgot()
    digested(plan.adapters)
    assert engine.drops == 0 and len(store_all(plan, hashed("r4", changed), 8)) == 2


def test_an_adapter_that_comes_from_another_folder_under_the_same_name(plan, tmp_path):
    """It keeps its id, under which the engine may load the old one again for a request that has not ended."""
    plan.adapters.engine = engine = FakeEngine()
    lora = load(plan, adapter(tmp_path / "a", b"old"))
    engine.live = [hashed("waiting", lora)]
    assert len(asked_for(plan, "waiting", lora)) == 2
    moved = load(plan, in_place(lora, lora_path=adapter(tmp_path / "b", b"new").lora_path))
    assert asked_for(plan, "r0", lora) == []  # whatever computes it
    engine.live.append(mixed := hashed("mixed", moved))
    plan.matched(mixed, 0)
    assert store_all(plan, mixed, 8) == [] and engine.drops == 0
    plan.finished(engine.live.pop(0))
    digested(plan.adapters)
    assert engine.drops == 1 and mixed.block_hashes != hashed("like it", moved).block_hashes
    assert plan.step(output_of(cached=[("mixed", None, 8 * BLOCK)], scheduled={"mixed": 1}))[1] == []
    engine.live = []
    assert len(store_all(plan, hashed("r1", moved), 8)) == 2
    late = hashed("late", lora)
    engine.live = [late]
    plan.adapters.keep_apart(late)
    assert asked_for(plan, "r2", moved) == []
    plan.finished(engine.live.pop())
    digested(plan.adapters)
    assert len(asked_for(plan, "r3", moved)) == 2 and engine.drops == 2


def test_an_adapter_that_was_removed_and_comes_again_with_other_files(plan, tmp_path):
    """The engine has its own blocks of the old files still, though no adapter."""
    plan.adapters.engine = engine = FakeEngine()
    lora = load(plan, adapter(tmp_path / "a", b"old"))
    old = {s.name for s in store_all(plan, hashed("r0", lora), 8)}
    plan.adapters.unloaded(1)
    adapter(tmp_path / "a", b"new")
    changed = load(plan, types.SimpleNamespace(**{**vars(lora), "lora_int_id": 2}))
    assert engine.drops == 1
    new = {s.name for s in store_all(plan, hashed("r1", changed), 8)}
    assert len(old) == len(new) == 2 and not old & new


def test_an_adapter_under_the_id_of_one_that_was_removed_while_a_request_needs_it(plan, tmp_path):
    """The engine loads the old one again for that request, and then does not read what comes under the id."""
    plan.adapters.engine = engine = FakeEngine()
    lora = load(plan, adapter(tmp_path / "a", b"old"))
    engine.live = [hashed("running", lora)]
    plan.adapters.unloaded(1)
    other = load(plan, adapter(tmp_path / "b", b"other"))
    assert store_all(plan, hashed("r0", other), 8) == []
    engine.live = []
    assert len(store_all(plan, hashed("r1", load(plan, in_place(other))), 8)) == 2


def test_an_adapter_that_could_not_be_loaded(plan, tmp_path):
    """The engine goes on with what it has."""
    core = Core()
    changes.watch(core, lambda what: None, plan.engine_forgot, plan.adapters)
    plan.adapters.engine = FakeEngine()
    lora = adapter(tmp_path / "a", b"old")
    core.add_lora(lora)
    digested(plan.adapters)
    assert len(store_all(plan, hashed("r0", lora), 8)) == 2
    adapter(tmp_path / "a", b"broken")
    core.fails = True
    with pytest.raises(RuntimeError, match="no adapter"):
        core.add_lora(in_place(lora))
    digested(plan.adapters)
    assert store_all(plan, hashed("r1", lora), 8) == []
    with pytest.raises(RuntimeError, match="no adapter"):
        core.add_lora(types.SimpleNamespace(**{**vars(lora), "lora_name": "b", "lora_int_id": 2}))
    assert len(plan.adapters.known) == 1
    core.fails = False
    unused = types.SimpleNamespace(**{**vars(lora), "lora_name": "c", "lora_int_id": 3})
    core.add_lora(unused)
    core.fails = True
    with pytest.raises(RuntimeError, match="no adapter"):
        core.add_lora(types.SimpleNamespace(**{**vars(unused), "lora_int_id": 4}))
    plan.adapters.keep_apart(late := hashed("late", unused))
    assert store_all(plan, late, 8) == []


def test_files_are_looked_at_while_adapters_come(tmp_path, monkeypatch):
    monkeypatch.setattr(adapters.Adapters, "LOOK_S", 0.05)
    known = adapters.Adapters()
    one = known.of(adapter(tmp_path / "a", b"old"))
    digested(known)
    many = [adapter(tmp_path / f"m{n}", b"m", number=2 + n) for n in range(3)]
    assert one.digest is not None
    adapter(tmp_path / "a", b"new")

    def asked():
        for lora in many:
            known.unloaded(lora.lora_int_id)
            known.of(lora)  # before the thread has nothing to do for so long
        time.sleep(0.01)
        return one.digest is None

    until(asked, 10, "a look")


def test_a_chunk_is_dropped_whose_adapter_may_have_been_read_again(tmp_path):
    """The engine read other files since, perhaps before it computed this."""
    folder = adapter(tmp_path / "v1", b"old").lora_path
    (tmp_path / "a").symlink_to("v1")
    files = str(tmp_path / "a"), adapters.print_of(tmp_path / "a")
    assert adapters.are_there(files) and adapters.are_there((folder, adapters.print_of(folder)))
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to("v1")
    assert not adapters.are_there(files)  # it may have pointed elsewhere meanwhile
    assert not adapters.are_there((str(tmp_path / "none"), files[1]))


def test_chunks_are_stored_once_their_adapter_has_a_name(plan, tmp_path):
    lora = adapter(tmp_path / "a", b"w")
    one = adapters.Adapter(lora.lora_path, time.time_ns())
    plan.adapters.known[plan.adapters._key(lora)] = one
    assert store_all(plan, request_of(8, lora_request=lora), 8) == []
    one.content = bytes(32)
    later = output_of(cached=[("r", None, 8 * BLOCK)], scheduled={"r": 1})
    assert len(plan.step(later)[1]) == 2


def test_an_adapter_that_cannot_be_read_shares_nothing(tmp_path):
    known = adapters.Adapters()
    for number, path in enumerate((str(tmp_path / "none"), "org/adapter")):
        lora = types.SimpleNamespace(lora_name="a", lora_path=path, lora_int_id=number)
        one = known.of(lora)
        digested(known)
        assert one.digest is None
    late = adapters.Adapters(sees_loads=False)  # it may have been loaded before it was last written
    one = late.of(adapter(tmp_path / "a", b"w"))
    digested(late)
    assert one.digest is None


class Core:
    """As vLLM's engine core."""

    def __init__(self):
        self.found, self.calls = changes.find_core(), []

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None):
        self.calls.append(method)
        if method == "broken":
            raise RuntimeError("broken")
        return [method]

    fails = False

    def add_lora(self, lora):
        if self.fails:
            raise RuntimeError("no adapter")
        return lora

    def remove_lora(self, lora_id):
        return lora_id

    def reset_prefix_cache(self, reset_running_requests=False, reset_connector=False):
        return reset_running_requests

    def is_scheduler_paused(self):
        return False


def test_weights_that_are_updated_in_place_are_noticed(plan, tmp_path):
    core, changed = Core(), []
    assert core.found is core  # seen from what it calls while it is made
    changes.watch(core, lambda what: changed.append(what) or plan.weights_changed(), plan.engine_forgot, plan.adapters)
    assert core.collective_rpc("check_health") == ["check_health"] and changed == []
    for method in ("update_weights", "reload_weights", "a_method_of_an_extension"):
        assert core.collective_rpc(method, None, args=(1,)) == [method]
    with pytest.raises(RuntimeError, match="broken"):  # it may have changed some
        core.collective_rpc("broken")
    core.collective_rpc(print)
    assert changed == ["update_weights", "reload_weights", "a_method_of_an_extension", "broken", "print"]
    assert plan.asker.epoch == 5
    lora = adapter(tmp_path / "a", b"w")
    assert core.add_lora(lora) is lora and len(plan.adapters.known) == 1
    assert core.remove_lora(lora.lora_int_id) == 1 and plan.adapters.known == {}


def test_what_is_computed_after_blocks_of_old_weights_is_not_stored(plan):
    """The engine goes on with what it cached itself until it is reset; what follows belongs to no weights."""
    core = Core()
    changes.watch(core, lambda what: plan.weights_changed(), plan.engine_forgot, plan.adapters)
    core.collective_rpc("update_weights")  # paused and emptied before, as it should be
    assert len(store_all(plan, request_of(8, request_id="a"), 8)) == 2
    core.collective_rpc("update_weights")  # now there are blocks of the old weights
    assert store_all(plan, request_of(8, request_id="b"), 8) == []
    assert plan.matched(request_of(8, request_id="c"), 0) == (0, False)
    core.reset_prefix_cache()  # blocks were in use: it failed
    assert store_all(plan, request_of(8, request_id="d"), 8) == []
    core.reset_prefix_cache(True)
    later = output_of(cached=[("d", None, 8 * BLOCK)], scheduled={"d": 1})
    assert plan.step(later)[1] == []  # began meanwhile
    core.reset_prefix_cache(True)
    assert len(store_all(plan, request_of(8, request_id="e"), 8)) == 2


def test_blocks_that_were_loaded_are_of_the_old_weights_as_those_that_were_computed(plan):
    request = request_of(8, request_id="a")
    plan.matched(request, 0)
    plan.asker.replies[1] = (2, 0)
    assert plan.matched(request, 0) == (8 * BLOCK, True)
    plan.allocated(request, list(range(8)), 8 * BLOCK)
    plan.step(output_of())  # computes nothing
    plan.weights_changed()
    assert plan.stale
    assert store_all(plan, request_of(8, request_id="b"), 8) == []
    plan.engine_forgot()
    assert len(store_all(plan, request_of(8, request_id="c"), 8)) == 2


def test_data_parallel_replicas_have_a_store_each(tmp_path, monkeypatch):
    """The second was left without NVMe: the first owned the folder of rank 0."""
    ranks = {fingerprint.store_rank(rank, 2, replica) for replica in range(3) for rank in range(2)}
    assert ranks == set(range(6)) and fingerprint.store_rank(1, 2, 0) == 1  # the first one's are named as ever
    nvme = {"path": str(tmp_path), "capacity": "64MiB"}
    common = {"l1": {"capacity": "1MiB"}, "nvme": nvme, "fingerprint": "ab" * 32}
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    caches = [
        library.Cache([json.dumps({**common, "rank": fingerprint.store_rank(0, 1, replica)})], "cache")
        for replica in range(2)
    ]  # fmt: skip
    try:
        assert [cache.mistakes for cache in caches] == ["", ""]
        assert sorted(f.name for f in (tmp_path / ("ab" * 32)).iterdir()) == ["0", "1"]
        for cache in caches:
            assert f'kvtier_tier_capacity_bytes{{tier="nvme"}} {64 << 20}' in cache.metrics()
    finally:
        for cache in caches:
            cache.close()


def test_an_engine_knows_how_many_caches_it_opens_on_its_node():
    """Each of its ranks took as much as if it were alone."""
    parallel = types.SimpleNamespace(local_world_size=4)
    assert fingerprint.node_ranks(parallel) == 4
    parallel.data_parallel_size_local = 2  # a mixture of experts
    assert fingerprint.node_ranks(parallel) == 8
    parallel.data_parallel_size_local = 0  # vLLM: data parallelism is set from outside
    assert fingerprint.node_ranks(parallel) == 4


def test_a_replicas_workers_have_the_numbers_and_ports_of_their_engine(monkeypatch, capfd):
    """The controller heard of worker 1 of an engine of one rank, at any port."""
    port = unused_port()
    control = {"pull": "tcp://127.0.0.1:9", "ip": "127.0.0.1", "ports": str(port)}
    common = {"l1": {"capacity": "1MiB"}, "controller": control}
    monkeypatch.setenv("KVTIER_LIBRARY", str(LIBRARY))
    cache = library.Cache([json.dumps(common), json.dumps(fingerprint.numbers(0, 1, 1))], "cache")
    try:
        assert cache.mistakes == ""
        socket.create_connection(("127.0.0.1", port), 5).close()
        assert "worker 0, at 127.0.0.1" in capfd.readouterr().err
    finally:
        cache.close()


class Pause(enum.Enum):
    UNPAUSED, PAUSED_NEW, PAUSED_ALL = range(3)


class Busy:
    """An engine core and its scheduler: a request waits for a load and another's blocks are being stored, each for
    some steps, and until then the engine refuses a reset of all."""

    collective_rpc = add_lora = remove_lora = is_scheduler_paused = lambda self, *args: None

    def __init__(self, loading, storing):
        self.scheduler, self.pause_state = self, Pause.PAUSED_ALL
        self.kv_holding_waiting, self.storing = ["loads"] * loading, storing
        self.refused, self.steps = 0, []

    def set_pause_state(self, state):
        self.pause_state = state

    def has_finished_requests(self):
        return self.storing > 0

    def _process_engine_step(self):
        self.steps.append(self.pause_state)
        if self.kv_holding_waiting:
            self.kv_holding_waiting.pop()
        else:
            self.storing -= 1

    def reset_prefix_cache(self, reset_running_requests=False, reset_connector=False):
        if self.kv_holding_waiting or self.storing > 0:
            self.refused += 1
            if reset_running_requests:
                raise RuntimeError("Failed to reset KV cache")
            return False
        return True


CALLS = types.SimpleNamespace(loaded=print, unloaded=print, failed=print)  # of adapters


def test_a_reset_of_all_waits_for_loads_and_stores(monkeypatch):
    """Without a connector /pause and a reset of running requests never fail, and with this one no more often."""
    forgot = []
    core = Busy(loading=3, storing=2)
    changes.watch(core, print, lambda: forgot.append(1), CALLS)
    assert core.reset_prefix_cache() is False and core.steps == []  # as ever: the caller asks again
    assert core.reset_prefix_cache(True, reset_connector=True) is True
    assert core.steps == [Pause.PAUSED_NEW] * 5  # no other request began, and blocks were not held for long
    assert core.pause_state is Pause.PAUSED_ALL and core.refused == 2 and forgot == [1]

    monkeypatch.setattr(changes, "SETTLE_S", 0.01)
    stuck = Busy(loading=0, storing=1 << 40)
    changes.watch(stuck, print, lambda: forgot.append(2), CALLS)
    with pytest.raises(RuntimeError, match="Failed to reset"):
        stuck.reset_prefix_cache(True)
    assert stuck.pause_state is Pause.PAUSED_ALL and forgot == [1]

    in_step = Busy(loading=1, storing=0)
    in_step.dp_group = object()  # its ranks compute together
    changes.watch(in_step, print, lambda: forgot.append(3), CALLS)
    with pytest.raises(RuntimeError, match="Failed to reset"):
        in_step.reset_prefix_cache(True)
    assert in_step.steps == [] and forgot == [1]
