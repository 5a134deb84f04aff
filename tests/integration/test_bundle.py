"""`kvway bundle`: what a support case needs, without secrets."""

import io
import json
import os
import pathlib
import re
import stat
import subprocess
import tarfile

import pytest

from rig.client import CHAT, chat_body
from rig.router import PROGRAM, write_config
from rig.wait import until, unused_port
from test_admin_keys import KEY, admin  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKEN = "sk-canary-0123456789"
ANSWERS = ["failed.jsonl", "groups.json", "health.txt", "latest.jsonl", "metrics.txt", "models.json", "ready.txt", "workers.json"]


def bundle(*words, status=0):
    """{name of a file: its text}, and what was said."""
    done = subprocess.run([PROGRAM, "bundle", *map(str, words), "-o", "-"], capture_output=True, timeout=60)
    assert done.returncode == status, done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r:gz") as archive:
        files = {member.name: archive.extractfile(member).read().decode() for member in archive.getmembers()}
    folders = {name.split("/")[0] for name in files}
    assert len(folders) == 1 and folders.pop().startswith("kvway-bundle-")
    return {name.split("/", 1)[1]: text for name, text in files.items()}, done.stderr.decode()


def leaks(files):
    return [name for name, text in files.items() if TOKEN in text]


def test_what_is_in_it(pair, tmp_path):
    log = tmp_path / "access.log"
    worker, router = pair(config={"log.access": str(log), "admission.max_queue": 77})
    headers = [("x-request-id", "the-one"), ("Authorization", f"Bearer {TOKEN}")]
    assert router.ask("POST", f"{CHAT}?api_key={TOKEN}", headers, chat_body()).status == 200
    worker.script = lambda ex: ex.close()
    assert router.ask("POST", CHAT, [("x-request-id", "the-failed")], chat_body()).status == 502
    until(lambda: log.exists() and "the-failed" in log.read_text(), what="both are logged")
    files, said = bundle("-c", router.config_path)
    assert "look through it before you send it" in said
    assert sorted(files) == sorted([*ANSWERS, "access_log.jsonl", "config.yaml", "summary.txt"])
    assert "max_queue: 77" in files["config.yaml"] and worker.url in files["config.yaml"]
    assert "kvway_build_info" in files["metrics.txt"]
    assert json.loads(files["workers.json"])[0]["url"] == worker.url
    assert "the-failed" in files["failed.jsonl"] and "the-one" not in files["failed.jsonl"]
    assert "the-one" in files["latest.jsonl"] and "the-one" in files["access_log.jsonl"]
    for name in ANSWERS:
        assert re.search(rf"^{name}: status 200, \d+ bytes$", files["summary.txt"], re.M), name
    assert "version of this program: kvway " in files["summary.txt"]
    assert not leaks(files)


def test_a_file_of_its_own_is_readable_by_its_owner_alone(pair, tmp_path):
    _, router = pair()
    done = subprocess.run([PROGRAM, "bundle", "-c", router.config_path], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("kvway-bundle-*.tar.gz")
    assert path.name in done.stderr and stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        assert {stat.S_IMODE(member.mode) for member in archive.getmembers()} == {0o600}


def test_without_a_router_the_rest_is_there(tmp_path):
    path = tmp_path / "kvway.yaml"
    write_config(path, {"admin.listen": f"127.0.0.1:{unused_port()}", "workers": [{"url": "http://127.0.0.1:1"}]})
    files, said = bundle("-c", path, status=3)
    assert sorted(files) == ["config.yaml", "summary.txt"] and "no kvway answers on" in said
    assert "health.txt and what follows: left out" in files["summary.txt"]


def without_a_router(tmp_path, log):
    path = tmp_path / "kvway.yaml"
    write_config(path, {"admin.listen": "127.0.0.1:1", "log.access": str(log), "workers": [{"url": "http://127.0.0.1:1"}]})
    return bundle("-c", path, status=3)[0]


def test_a_log_that_is_too_long_begins_with_a_whole_line(tmp_path):
    """The rest of a URL whose begin is cut off would show its password."""
    line = json.dumps({"worker": f"http://user:{TOKEN * 100}@w:1"}) + "\n"
    (tmp_path / "access.log").write_text(line * 1000)
    files = without_a_router(tmp_path, tmp_path / "access.log")
    assert all(json.loads(one) for one in files["access_log.jsonl"].splitlines())
    assert len(files["access_log.jsonl"].splitlines()) > 100 and not leaks(files)


def test_a_log_whose_last_line_is_too_long_is_left_out(tmp_path):
    (tmp_path / "access.log").write_text("x" * 300000)
    files = without_a_router(tmp_path, tmp_path / "access.log")
    assert "access_log.jsonl" not in files and "its last line is too long" in files["summary.txt"]


def test_a_log_that_is_a_pipe_keeps_its_lines(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(pipe, b"for its reader\n")
    files = without_a_router(tmp_path, tmp_path / "pipe")
    assert "access_log.jsonl: left out" in files["summary.txt"] and os.read(pipe, 100) == b"for its reader\n"
    os.close(pipe)


def test_a_router_elsewhere(pair):
    _, router = pair()
    files, _ = bundle("--admin", f"127.0.0.1:{router.admin_port}")
    assert sorted(files) == sorted([*ANSWERS, "summary.txt"]) and "config.yaml: left out: give -c FILE" in files["summary.txt"]


def test_the_key_of_the_admin_address(admin, tmp_path):  # noqa: F811
    router = admin()
    key = tmp_path / "key"
    key.write_text(KEY + "\n")
    files, _ = bundle("-c", router.config_path)
    assert "workers.json: status 401" in files["summary.txt"]  # and the rest is there all the same
    files, _ = bundle("-c", router.config_path, "--key-file", key)
    assert "workers.json: status 200" in files["summary.txt"]
    assert not [name for name, text in files.items() if KEY in text]


def text_keys():
    """(path, type) of all keys whose values are texts."""
    keys = (ROOT / "config/keys.def").read_text()
    kinds = "STRING|STRINGS|TOKENS|SECRET|URL|ADDRESS|PATH"
    return re.findall(rf'^KVW_(WORKER_|POOL_)?KEY\("([^"]+)", ({kinds}),', keys, re.M)


def with_value(where, path, kind, value):
    """A configuration in which this key has the value."""
    value = [value] if kind in ("STRINGS", "TOKENS") else value
    config = {"workers": [{"url": "http://127.0.0.1:1"}], "admin.listen": "127.0.0.1:1"}
    if where == "WORKER_":
        config["workers"][0][path] = value
    elif where == "POOL_":
        config["discovery.kubernetes.pools"] = [{"selector": "app=vllm", path: value}]
    else:
        config[path] = value
    return config


VALUES = (
    TOKEN, f"redis://user:{TOKEN}@127.0.0.1:6379/0", f"https://user:{TOKEN}@127.0.0.1/a?key={TOKEN}", f"https://a/b?key={TOKEN}",
    f"Bearer {TOKEN}",
)  # fmt: skip


def test_a_secret_in_any_key_stays_here(tmp_path):
    """In a key of type SECRET any value; in the others what a secret looks like."""
    path, shown, secret = tmp_path / "kvway.yaml", 0, set()
    assert len(text_keys()) > 60
    for where, key, kind in text_keys():
        for value in VALUES if kind == "SECRET" else VALUES[1:]:
            write_config(path, with_value(where, key, kind, value))
            if subprocess.run([PROGRAM, "render", "-c", path], capture_output=True, timeout=60).returncode != 0:
                continue  # no value of this key
            done = subprocess.run([PROGRAM, "bundle", "-c", path, "-o", "-"], capture_output=True, timeout=60)
            if done.returncode not in (0, 3):
                continue  # its admin address cannot be asked
            with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r:gz") as archive:
                texts = [archive.extractfile(member).read().decode() for member in archive.getmembers()]
            assert not [text for text in texts if TOKEN in text], (key, value)
            shown += 1
            secret |= {key} if kind == "SECRET" else set()
    assert shown > 20 and secret == {"api_key", "rate_sharing.redis", "replicas.redis", "tracing.endpoint", "tracing.headers"}


@pytest.mark.parametrize("words, said", (
    (["now"], "found `now`, expected flags only"),
    (["--json"], "--json: the archive has one form"),
    (["--admin", "127.0.0.1:1", "-c", "x"], "give --admin ADDR or -c FILE, not both"),
))
def test_wrong_usage(words, said):
    done = subprocess.run([PROGRAM, "bundle", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr and "Try `kvway bundle --help`." in done.stderr


def test_where_it_cannot_be_written(tmp_path):
    path = tmp_path / "kvway.yaml"
    write_config(path, {"workers": [{"url": "http://127.0.0.1:1"}]})
    done = subprocess.run([PROGRAM, "bundle", "-c", path, "-o", tmp_path / "no/where"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "No such file or directory" in done.stderr
