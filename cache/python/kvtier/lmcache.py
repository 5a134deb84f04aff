"""LMCache's configuration in all its places: `lmcache_config.yaml` named by LMCACHE_CONFIG_FILE, LMCACHE_* variables,
which override the file, and `lmcache.*` in vLLM's kv_connector_extra_config, which override both.

libkvtier translates it (kvt_lmcache_read; LMCACHE.md has every key), so that `kvtier check` and the connector agree.
Settings that could not be applied are logged with file, line and key.
"""

import ctypes
import json
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_uint32

from . import library

PREFIX = "lmcache."
# Keys of LMCache's connector in kv_connector_extra_config that have no prefix.
OTHERS = {
    "discard_partial_chunks": "save_unfull_chunk says what becomes of a prompt's rest",
    "skip_last_n_tokens": "the last token of a prompt is always computed",
    "lmcache_rpc_port": "ranks are asked over Unix sockets",
}


class Source(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("rank", c_uint32),
        ("ranks", c_uint32),
        ("reserved", c_uint32),
        ("path", c_char_p),
        ("variables", POINTER(c_char_p)),
    ]


class Translation(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("settings", c_char_p),
        ("connector", c_char_p),
        ("mistakes", c_char_p),
        ("notes", c_char_p),
    ]


def _variables(environ, extra):
    """NAME=VALUE, bytes; the value of an `lmcache.*` in the form of a variable."""
    lines = [f"{name}={value}" for name, value in environ.items()]
    for name, value in extra.items():
        if isinstance(name, str) and name.startswith(PREFIX):
            lines.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return [line.encode(errors="surrogateescape") for line in lines if "\0" not in line]


def _call(environ, extra, rank, ranks):
    lib = library.load_library()
    lib.kvt_lmcache_read.argtypes = [POINTER(Source), POINTER(Translation)]
    lib.kvt_lmcache_read.restype = c_int
    lib.kvt_lmcache_finish.argtypes = [POINTER(Translation)]
    lib.kvt_lmcache_finish.restype = None
    lines = _variables(environ, extra)
    variables = (c_char_p * (len(lines) + 1))(*lines, None)
    source = Source(ctypes.sizeof(Source), rank, ranks, 0, None, variables)
    out = Translation(size=ctypes.sizeof(Translation))
    status = lib.kvt_lmcache_read(byref(source), byref(out))
    if status == library.MISS:  # only keys of another mode are no configuration of this one
        others = [name for name in extra if str(name).startswith(PREFIX)]
        return None, [f"{name}: ignored: of LMCache's multi-process mode" for name in others]
    if status not in (library.OK, library.EINVAL):
        raise library.KvtierError(f"kvt_lmcache_read: {lib.kvt_status_text(status).decode()}")
    try:
        own = {**json.loads(out.connector), "cache": json.loads(out.settings)}
        problems = (out.mistakes + out.notes).decode(errors="replace").splitlines()
    finally:
        lib.kvt_lmcache_finish(byref(out))
    return own, problems


def read(environ, extra=None, rank=0, ranks=0):
    """(the connector's extra configuration made from LMCache's, None if there is none; the problems found in it). A
    library that cannot be loaded is such a problem; the connector reports it again when it needs the library."""
    extra = extra or {}
    if not any(name.startswith(("LMCACHE_", PREFIX)) for name in [*environ, *map(str, extra)]):
        return None, []
    try:
        return _call(environ, extra, rank, ranks)
    except library.KvtierError as error:
        return None, [f"LMCache's configuration is not read: {error}"]


class Requests:
    """Warns once about requests with keys for LMCache (`lmcache.tag.user` in their kv_transfer_params), since kvtier
    ignores them. vLLM's own cache ignores them too; only `cache_salt` keeps tenants apart."""

    def __init__(self, logger):
        self.logger = logger
        self.warned = False

    def look(self, request):
        params = getattr(request, "kv_transfer_params", None)
        if self.warned or not isinstance(params, dict):
            return
        names = [name for name in params if isinstance(name, str) and name.startswith(PREFIX)]
        if names:
            self.warned = True
            self.logger.warning(
                "kvtier: a request has %.80r in its kv_transfer_params; such keys are ignored, tags included: use "
                "cache_salt to keep tenants apart. This is logged only once.",
                names[0],
            )
