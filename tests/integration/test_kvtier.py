"""The program kvtier: what its verbs print, and their exit status."""

import fcntl
import json
import os
import pathlib
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("KVW_BUILD", ROOT / "build")) / "cache/command/kvtier"
VERBS = ["stat", "verify", "erase", "size", "check", "bench", "reference"]
QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}


def kvtier(*arguments, status=0, text=None):
    """Runs the program; returns what it printed on both outputs."""
    run = subprocess.run(
        [PROGRAM, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == status, (arguments, run.returncode, run.stdout, run.stderr)
    assert "Sanitizer" not in run.stderr and "runtime error" not in run.stderr, run.stderr
    return run


@pytest.fixture
def model(tmp_path):
    def make(**changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**QWEN, **changes}))
        return path

    return make


# --- help and mistakes of the command line ------------------------------------------------------


def test_help_lists_every_verb_and_each_explains_itself():
    text = kvtier("--help").stdout
    assert text == kvtier("help").stdout
    for verb in VERBS:
        assert f"\n  {verb} " in text
        assert kvtier(verb, "--help").stdout.startswith(f"kvtier {verb} - ")
        assert kvtier("help", verb).stdout == kvtier(verb, "--help").stdout
    assert kvtier("--version").stdout.startswith("kvtier ")


@pytest.mark.parametrize("arguments", [["reference"], ["--help"], ["check", "-"], ["size", "MODEL"]])
def test_a_result_that_is_lost_is_no_success(arguments, model):
    arguments = [str(model()) if each == "MODEL" else each for each in arguments]
    with open("/dev/full", "w") as full:
        run = subprocess.run([PROGRAM, *arguments], input="", stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert run.returncode == 3, run
    assert "kvtier: what was printed is not whole: No space left on device" in run.stderr


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "usage: kvtier VERB"),
        (["sizes"], "no verb `sizes`"),
        (["help", "sizes"], "no verb `sizes`"),
        (["size"], "expected a model's config.json"),
        (["size", "a", "b"], "one argument too many"),
        (["size", "--prefil", "1", "a"], "no option `--prefil`"),
        (["size", "--prefill"], "needs a value"),
        (["size", "--json=1", "a"], "takes no value"),
        (["size", "--prefill", "fast", "a"], "--prefill: found `fast`"),
        (["size", "--prefill", "0", "a"], "--prefill: found `0`"),
        (["size", "--flops", "1T", "a"], "--parameters go together"),
        (["size", "--prefill", "1", "--flops", "1T", "--parameters", "1G", "a"], "give one"),
        (["size", "--tensor-parallel", "1.5", "a"], "a whole number"),
        (["stat"], "expected a store's folder"),
        (["verify"], "expected a store's folder"),
        (["verify", "--rate", "fast", "a"], "--rate: found `fast`"),
        (["check"], "expected a YAML file"),
        (["bench", "--chunk", "4MB"], "--chunk: found `4MB`"),
        (["bench", "--chunk", "64MiB"], "need --l1 of 32"),
        (["bench", "--seconds", "x"], "--seconds: found `x`"),
        (["reference", "all"], "one argument too many"),
    ],
)
def test_a_wrong_command_line_says_so(arguments, says):
    run = kvtier(*arguments, status=2)
    assert says in run.stderr and run.stdout == ""


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layers, heads, kib", [(28, 2, 28), (28, 4, 56), (80, 8, 320)], ids=["1.5B", "7B", "72B"]
)
def test_bytes_per_token_of_qwen(model, layers, heads, kib):
    # 128 elements a head: hidden_size / num_attention_heads
    path = model(num_hidden_layers=layers, num_key_value_heads=heads)
    text = kvtier("size", path).stdout
    assert f"KV per token     {kib * 1024} bytes = {kib} KiB" in text
    told = json.loads(kvtier("size", "--json", path.parent).stdout)
    assert told["bytes_per_token"] == kib * 1024
    assert told["chunk_bytes"] == kib * 1024 * 256
    assert told["context_bytes"] == kib * 1024 * 32768


def test_break_even_shows_its_sum(model):
    text = kvtier("size", "--prefill", "12k", "--nvme-rate", "6G", "--l1-rate", "1G", model()).stdout
    assert "= 57344 x 12000 = 0.69 GB/s" in text
    assert "6.00 GB/s (given) = 8.72 x B*\n        offload" in text
    assert "1.00 GB/s (given) = 1.45 x B*\n        offload: fetching is a little faster" in text
    assert "519 x 12000 x 57344 = 333 GiB" in text
    slow = kvtier("size", "--prefill", "12k", "--nvme-rate", "0.5G", model()).stdout
    assert "computing is faster on an idle engine" in slow
    told = json.loads(
        kvtier("size", "--json", "--flops", "989T", "--parameters", "7.6G", model()).stdout
    )
    assert told["prefill_tokens_per_second"] == pytest.approx(0.4 * 989e12 / (2 * 7.6e9))
    assert told["break_even_bytes_per_second"] == pytest.approx(
        57344 * told["prefill_tokens_per_second"]
    )


def test_room_on_this_machine(model, tmp_path):
    told = json.loads(kvtier("size", "--json", "--path", tmp_path, model()).stdout)
    for tier in told["tiers"].values():
        assert tier["bytes"] > 0 and tier["tokens"] == tier["bytes"] // 57344 and tier["why"]


# The published recommendation for a p4de.24xlarge (8 x A100 80 GB, 1.1 TB), and what its text says of two models.
P4DE = ["--gpu", "8 x A100 80GB", "--ram", "1.1TB"]
SHAPES = {
    "1.5B": {"num_hidden_layers": 28, "num_key_value_heads": 2, "hidden_size": 1536, "num_attention_heads": 12,
             "intermediate_size": 8960, "vocab_size": 151936, "tie_word_embeddings": True},
    "7B": {"num_hidden_layers": 28, "num_key_value_heads": 4, "hidden_size": 3584, "num_attention_heads": 28,
           "intermediate_size": 18944, "vocab_size": 152064},
    "8B": {"num_hidden_layers": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_attention_heads": 32,
           "intermediate_size": 14336, "vocab_size": 128256},
    "72B": {"num_hidden_layers": 80, "num_key_value_heads": 8, "hidden_size": 8192, "num_attention_heads": 64,
            "intermediate_size": 29568, "vocab_size": 152064},
}  # fmt: skip


@pytest.mark.parametrize(
    "name, gpus, fits, memory, published",
    [
        ("1.5B", 1, 2.59e6, 34.5e6, {"fits": 2.5e6}),  # the table says 2M, the text 2.5M; 30M in memory
        ("7B", 1, 1.08e6, 17.3e6, {}),  # 250K and 8M
        ("8B", 1, 467e3, 7.55e6, {"memory": 8e6}),  # 250K and 8M
        ("72B", 4, 500e3, 3.02e6, {"fits": 500e3, "memory": 3e6}),  # the table says 250K, the text 500K
    ],
)
def test_when_to_offload_next_to_what_is_published(model, name, gpus, fits, memory, published):
    path = model(**SHAPES[name])
    told = json.loads(kvtier("size", "--json", *P4DE, "--model", path).stdout)["offload"]
    assert told["chosen"]["gpus"] == gpus
    ours = {"fits": told["chosen"]["tokens"], "memory": told["memory_tokens"]}
    assert ours == pytest.approx({"fits": fits, "memory": memory}, rel=0.01)
    for cell, tokens in published.items():  # those that the formula gives; cache/command/README.md has all of them
        assert ours[cell] == pytest.approx(tokens, rel=0.15)
    assert [row["recommendation"] for row in told["table"]] == [
        "No offloading needed", "Consider CPU offloading", "Consider Disk offloading"]  # fmt: skip
    assert [row["to"] for row in told["table"]] == [ours["fits"], ours["memory"], None]


def test_when_to_offload_for_people(model, tmp_path):
    path = model(**SHAPES["72B"])
    text = kvtier("size", *P4DE, "--disk", "8TB", "--nvme-rate", "6G", path).stdout
    assert "|Model Size|Context Length|Recommendation|" in text
    assert "|72.7B|< 500k|No offloading needed|" in text
    assert "||500k - 3.0M|Consider CPU offloading|" in text
    assert "||3.0M - 22M|Consider Disk offloading|" in text
    assert "(4 x 80 GiB x 0.9 - 135 GiB) / (4 x 81920 bytes) = 500k" in text
    assert "on    1: the weights do not fit" in text
    assert "25.00 GB/s (of such a GPU)" in text
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1000)
    assert "1000 bytes (its files)" in kvtier("size", *P4DE, tmp_path).stdout


def test_gpus_by_name_and_by_size(model):
    def offload(gpu, *more):
        told = json.loads(kvtier("size", "--json", "--gpu", gpu, "--ram", "1TB", *more, model()).stdout)
        return told["offload"], told

    names = [line.split("  ")[0] for line in kvtier("size", "--gpu", "list").stdout.splitlines()[1:]]
    assert "A100 80GB" in names and "H200 141GB" in names
    for name in names:
        assert offload(f"2 x {name}")[0]["gpu"] == name
    for name in ("4xh200", "4 * NVIDIA H200", "4 x H200-141GB"):
        assert (offload(name)[0]["gpu"], offload(name)[0]["gpus"]) == ("H200 141GB", 4)
    own, told = offload("8 x 96GB", "--flops", "400T", "--l1-rate", "50G", "--weights", "20GB")
    assert own["gpu_bytes"] == 96e9 and own["weight_bytes"] == 20e9
    assert own["chosen"]["tokens"] == pytest.approx((96e9 * 0.9 - 20e9) / 57344, rel=1e-6)
    assert told["break_even_bytes_per_second"] > 0 and own["contexts"][0]["memory_s"] > 0
    wide = offload("8 x A100 80GB", "--tensor-parallel", "8", "--gpu-share", "0.5")[0]["chosen"]
    assert wide["gpus"] == 8 and wide["copies"] == 1
    assert "A100 40GB, A100 80GB" in kvtier("size", "--gpu", "A100", model(), status=2).stderr
    assert "--gpu list" in kvtier("size", "--gpu", "8 x B52", model(), status=2).stderr
    assert "go with --gpu" in kvtier("size", "--ram", "1TB", model(), status=2).stderr
    assert "--ram: found `much`" in kvtier("size", "--gpu", "H200", "--ram", "much", model(), status=2).stderr
    assert "do not fit" in kvtier("size", "--gpu", "2 x L4", "--weights", "80GB", model(), status=3).stderr
    assert "more than there are GPUs" in kvtier(
        "size", "--gpu", "2 x L4", "--tensor-parallel", 4, model(), status=3).stderr  # fmt: skip


def test_what_is_no_model(model, tmp_path):
    assert "No such file" in kvtier("size", tmp_path / "none.json", status=3).stderr
    assert "num_attention_heads" in kvtier("size", model(num_attention_heads=None), status=3).stderr
    assert "3 ranks cannot" in kvtier("size", "--tensor-parallel", 3, model(), status=3).stderr
    (tmp_path / "config.json").write_text('{"a": ')
    assert "line 1" in kvtier("size", tmp_path, status=3).stderr


# --- check ----------------------------------------------------------------------------------------


def test_a_right_configuration(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"l1: {{capacity: 64MiB}}\nnvme: {{path: {tmp_path}/store, capacity: 64MiB}}\n")
    run = kvtier("check", path)
    assert run.stderr == ""
    assert "l1.capacity: 64MiB\n" in run.stdout and "nvme.depth: 32\n" in run.stdout
    assert not (tmp_path / "store").exists()  # nothing is made


def test_every_mistake_is_reported_and_the_rest_applies(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("l1: {capacity: 10GB, policy: lur}\nnvm: {}\nrank: 3\n")
    run = kvtier("check", path, status=1)
    lines = run.stderr.splitlines()
    assert lines[0].startswith(f"{path}:1:16: l1.capacity: found `10GB`")
    assert "did you mean `lru`?" in lines[1] and "did you mean `nvme`?" in lines[2]
    assert len(lines) == 3
    assert "rank: 3\n" in run.stdout and "l1.capacity: auto\n" in run.stdout


def test_what_cannot_work_here(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("1: " + "ab" * 16 + "cd" * 16 + "\n")
    keys.chmod(0o644)
    (tmp_path / "file").write_text("")
    path = tmp_path / "c.yaml"
    path.write_text(
        f"l1: {{capacity: 60TiB}}\nnvme: {{path: {tmp_path}/file/store}}\n"
        f"protect: {{keys: {keys}}}\n"
    )
    run = kvtier("check", path, status=1)
    assert "l1.capacity: found 60 TiB, but" in run.stderr
    assert "file/store cannot be used: Not a directory" in run.stderr
    assert "others may read or write" in run.stderr
    keys.chmod(0o600)
    assert "protect.keys" not in kvtier("check", path, status=1).stderr
    assert "1 keys, 1 seals" in kvtier("check", path, status=1).stdout


@pytest.mark.parametrize(
    "config, says",
    [
        ("{l1: {capacity: 1TiB, backing: 'shm:kvtier_check'}}", "l1.capacity: found 1 TiB, but"),
        ("{l1: {capacity: 64MiB, backing: hugetlb}}", "of huge pages are free: ordinary ones would be taken"),
        ("{l1: {capacity: 64MiB, numa_node: 900}}", "l1.numa_node: found 900, but this machine's nodes are 0 to"),
        ("{l1: {capacity: 64MiB}, nvme: {path: /tmp/kvtier_check, capacity: 1024TiB}}", "that are free in /tmp"),
    ],
)
def test_what_the_machine_cannot_hold(tmp_path, config, says):
    if "hugetlb" in config and "HugePages_Free:        0" not in open("/proc/meminfo").read():
        pytest.skip("this machine has huge pages")
    path = tmp_path / "c.yaml"
    path.write_text(config)
    lines = kvtier("check", path, status=1).stderr.splitlines()
    assert len(lines) == 1 and says in lines[0]


def test_a_shared_tier(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("l2: {url: 'rediss://bob:s3cret@cache.example:7000/2'}\nl1: {capacity: 64MiB}\n")
    run = kvtier("check", path)
    assert "# l2: rediss://cache.example:7000/2, with a login\n" in run.stdout
    assert "l2.url: \"rediss://***@cache.example:7000/2\"\n" in run.stdout
    assert "s3cret" not in run.stdout + run.stderr


@pytest.mark.parametrize(
    "l2, says",
    [
        ("{url: 'redis://h', tls_ca: /none/ca.pem}", "l2.tls_ca: /none/ca.pem cannot be read"),
        ("{url: 'redis://h', tls_ca: /dev/null}", "expected rediss://"),
        ("{url: 'redis://h', password_file: /none}", "l2.password_file: /none cannot be read"),
        ("{url: 'rediss://h', tls_key: /dev/null}", "expected together with l2.tls_key"),
        ("{url: 'redis://h', format: lmcache}", "l2.format: found a key of an earlier version, which was removed"),
        ("{url: 'kvtierd://h', segment: kvtier_not_there}", "is the daemon running"),
        ("{url: 'redis://h:port'}", "l2.url: found `redis://h:port`"),
    ],
)
def test_a_shared_tier_that_cannot_work(tmp_path, l2, says):
    path = tmp_path / "c.yaml"
    path.write_text(f"l2: {l2}\nl1: {{capacity: 64MiB}}\n")
    assert says in kvtier("check", path, status=1).stderr


def test_check_reads_standard_input():
    assert "rank: 7\n" in kvtier("check", "-", text="rank: 7\nl1: {capacity: 64MiB}\n").stdout
    assert "cannot be opened" in kvtier("check", "/nonexistent", status=3).stderr


# --- stores ---------------------------------------------------------------------------------------

BENCH = ["bench", "--seconds", "0.02", "--l1", "128MiB", "--chunk", "256KiB", "--disk", "16MiB", "--json"]


@pytest.fixture
def store(tmp_path):
    """store(*options): a folder with 64 chunks of 256 KiB, made by a real cache."""

    def make(*options):
        told = kvtier(*BENCH, "--keep", "--path", tmp_path, *options).stderr
        folder = pathlib.Path(told.split("the store is in ")[1].strip())
        return folder

    return make


def log_of(folder):
    (log,) = folder.glob("*/*/log")
    return log


def test_stat_and_verify_of_a_whole_store(store):
    folder = store()
    inner = log_of(folder).parent
    text = kvtier("stat", folder).stdout
    assert text.startswith(f"{inner}\n  owner    none\n") and "chunks   64: 16 MiB" in text
    assert "(no salt)        64 chunks" in text
    again = kvtier("stat", inner).stdout
    assert [a for a in again.splitlines() if "ago" not in a] == [
        a for a in text.splitlines() if "ago" not in a
    ]
    (told,) = json.loads(kvtier("stat", "--json", folder).stdout)
    assert told["chunks"] == 64 and told["payload_bytes"] == 16 << 20
    assert told["disk_bytes"] <= told["data_bytes"] and not told["owned"]
    assert [t["chunks"] for t in told["tenants"]] == [64]
    assert "no damage" in kvtier("verify", folder).stdout
    (told,) = json.loads(kvtier("verify", "--json", "--rate", "1GiB", inner).stdout)
    assert (told["right"], told["damaged"], told["damage"]) == (64, 0, False)


def test_verify_finds_a_flipped_bit(store):
    folder = store()
    data = sorted(log_of(folder).parent.glob("data-*"))[3]
    with data.open("r+b") as file:
        file.seek(100000)  # in the payload of its first chunk
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    before = data.read_bytes()
    run = kvtier("verify", folder, status=1)
    assert "DAMAGED" in run.stdout and "63 right, 1 damaged" in run.stdout
    assert "not what was stored" in run.stderr
    assert data.read_bytes() == before  # nothing is repaired
    (told,) = json.loads(kvtier("verify", "--json", folder, status=1).stdout)
    assert told["damage"] and told["damaged"] == 1


def test_a_store_whose_path_is_no_utf8_is_in_the_list(store):
    folder = store()
    other = os.fsencode(folder.parent) + b"/caf\xe9"
    os.rename(folder, other)
    for verb, what in (("stat", "chunks"), ("verify", "right"), ("erase", "done")):
        more = [b"--dry-run", b"--tenant", b"x"] if verb == "erase" else []
        argv = [os.fsencode(PROGRAM), verb.encode(), *more, b"--json", other]
        run = subprocess.run(argv, capture_output=True, timeout=120)
        assert run.returncode == 0, run
        (told,) = json.loads(run.stdout)
        assert "/caf\ufffd/" in told["folder"] and told[what]


def test_a_damaged_log_is_reported(store):
    folder = store()
    with log_of(folder).open("r+b") as file:
        file.seek(4096 + 5 * 256 + 100)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    assert "1 damaged (skipped)" in kvtier("stat", folder).stdout
    assert "63 right" in kvtier("verify", folder).stdout


def test_a_sealed_store(store, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("7: " + "0123456789abcdef" * 4 + "\n")
    keys.chmod(0o600)
    folder = store("--keys", keys)
    text = kvtier("verify", folder).stdout
    assert "no damage" in text and "64 sealed: header right" in text
    assert "64 right, 0 damaged" in kvtier("verify", "--keys", keys, folder).stdout
    data = sorted(log_of(folder).parent.glob("data-*"))[0]
    with data.open("r+b") as file:
        file.seek(100000)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    assert "63 right, 1 damaged" in kvtier("verify", "--keys", keys, folder, status=1).stdout
    keys.write_text("8: " + "0123456789abcdef" * 4 + "\n")
    assert "64 sealed: header right" in kvtier("verify", "--keys", keys, folder).stdout
    told = json.loads(kvtier(*BENCH, "--path", tmp_path, "--keys", keys).stdout)
    assert told["nvme_read_bytes_per_second"] > 0
    keys.chmod(0o644)
    assert "others may read" in kvtier("verify", "--keys", keys, folder, status=3).stderr
    assert "protect.keys" in kvtier(*BENCH, "--path", tmp_path, "--keys", keys, status=3).stderr


def test_an_owner_is_seen_and_not_disturbed(store):
    folder = store()
    lock = log_of(folder).parent / "lock"
    with lock.open("w") as file:
        file.write("4711\n")
        file.flush()
        taken = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, 37, taken)  # F_OFD_SETLK
        assert "owner    pid 4711, running" in kvtier("stat", folder).stdout
        assert "64 right" in kvtier("verify", folder).stdout
    assert "owner    none" in kvtier("stat", folder).stdout


def test_what_is_no_store(store, tmp_path):
    for verb in ("stat", "verify"):
        assert "no such folder" in kvtier(verb, tmp_path / "none", status=3).stderr
        assert "holds no store" in kvtier(verb, tmp_path, status=3).stderr
    folder = store()
    (form,) = folder.glob("*/*/format")
    whole = form.read_bytes()
    form.write_bytes(b"otherone" + whole[8:])
    for verb in ("stat", "verify"):
        assert kvtier(verb, folder, status=3).stderr.count("\n") == 1
    assert form.read_bytes()[:8] == b"otherone"


# --- reference, bench -----------------------------------------------------------------------------


def test_the_reference_is_the_page_and_its_example_loads(tmp_path):
    assert kvtier("reference").stdout == (ROOT / "cache/options/REFERENCE.md").read_text()
    example = kvtier("reference", "--example").stdout
    assert example == (ROOT / "cache/options/examples/full.yaml").read_text()
    assert kvtier("check", "-", text=example).stderr == ""


def test_bench_measures_and_leaves_nothing(tmp_path):
    arguments = ["--seconds", "0.05", "--l1", "128MiB", "--chunk", "1MiB", "--fragments"]
    text = kvtier("bench", *arguments).stdout
    assert "put, with checksum" in text and "keys turned" in text and "failed" not in text
    told = json.loads(
        kvtier("bench", *arguments, "--path", tmp_path, "--disk", "32MiB", "--json").stdout
    )
    assert all(told[name] > 0 for name in told if name.endswith(("_second", "_seconds")))
    assert told["nvme_mode"] and told["fragment_turn_bytes_per_second"]
    assert list(tmp_path.iterdir()) == []
    assert "No such file" in kvtier("bench", *arguments, "--path", "/nonexistent", status=3).stderr
