"""Decides which images (audio and video alike) have a name by content.

vLLM names an image by a hash of its pixels, or by the `uuid` that a client gives it. A client may give another picture
the same uuid after a restart, or to another engine, and then keys and values of the old one lie in a store. So the
process that hashes images marks names made from their content (`versions.mark_media`), and the scheduler takes every
name without the mark for a client's: tokens after such an image are cached, but under names that no other process
makes, and that this process gives up when the engine empties its own cache.
"""

MARK = ".by-content"


def is_named(feature):
    """Returns whether the name of this image of a request (vLLM's MultiModalFeatureSpec) covers all that decides the
    model's input. With LoRA in the encoder of images (`enable_tower_connector_lora`) vLLM's name includes the adapter's
    name, but not its files, and vLLM keeps the encoded image when other files come."""
    base = getattr(feature, "mm_hash", None)
    return str(feature.identifier).endswith(MARK) and base in (None, feature.identifier)


def mark(hashes, uuids):
    """Names of images, with the mark on those that no client gave; uuids: clients' names, None where there is none. A
    client's name never ends like a marked one."""

    def one(name, uuid):
        if uuid is None:
            return name + MARK
        return name + "." if name.endswith(MARK) else name

    return [one(name, uuid) for name, uuid in zip(hashes, uuids or [None] * len(hashes), strict=True)]


def first_of(features, fits=lambda feature: True):
    """The first token of the first of these images that `fits`, or None."""
    return min((feature.mm_position.offset for feature in features or () if fits(feature)), default=None)
