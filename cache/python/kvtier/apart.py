"""Requests that the engine's own prefix cache keeps apart from others, by a cache salt that no client has."""

import secrets

OUTDATED = "kvtier.outdated/1:"  # the LoRA adapter was replaced; a random number follows


def give_salt(request, salt):
    """Gives a request other block hashes than before, for the same tokens. ValueError, AttributeError: this engine's
    requests do not allow that; the request's salt is then the new one, its hashes are undefined."""
    before = [bytes(one) for one in request.block_hashes]
    request.cache_salt = salt
    request.block_hashes.clear()
    request.update_block_hashes()
    after = [bytes(one) for one in request.block_hashes]
    if len(after) != len(before) or set(after) & set(before):
        raise ValueError("a cache salt leaves its block hashes as they were")


def is_outdated(request):
    salt = getattr(request, "cache_salt", None)
    return isinstance(salt, str) and salt.startswith(OUTDATED)


def mark_outdated(request):
    """Hides blocks that this request computes from now on from other requests, and theirs from it. Errors as in
    give_salt."""
    if not is_outdated(request):
        give_salt(request, OUTDATED + secrets.token_hex(16))
