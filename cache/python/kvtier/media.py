"""Which images (audio, video alike) have a name by content.

vLLM names an image by a hash of its pixels, or by the `uuid` that a client gives it. A client may give another picture
the same uuid after a restart, or to another engine, and then keys and values of the old one lie in a store. So the
process that hashes images marks the names that it made of their content (`versions.mark_media`), and the scheduler
takes every name without the mark for a client's: what follows such an image is cached, but by names that no other
process makes, and that this one gives up when the engine empties its own cache.
"""

MARK = ".by-content"


def is_named(feature):
    """Is this image of a request (vLLM's MultiModalFeatureSpec) named by all that decides what the model sees of it? With
    LoRA in what reads images (`enable_tower_connector_lora`) vLLM names it by the adapter's name as well, not by its files,
    and keeps what it made of the image when other files come."""
    base = getattr(feature, "mm_hash", None)
    return str(feature.identifier).endswith(MARK) and base in (None, feature.identifier)


def mark(hashes, uuids):
    """Names of images with the mark where no client gave them; uuids: those that clients gave, None where they gave
    none. What a client gives never ends like a marked one."""

    def one(name, uuid):
        if uuid is None:
            return name + MARK
        return name + "." if name.endswith(MARK) else name

    return [one(name, uuid) for name, uuid in zip(hashes, uuids or [None] * len(hashes), strict=True)]


def first_of(features, fits=lambda feature: True):
    """The first token of the first of these images that `fits`, or None."""
    return min((feature.mm_position.offset for feature in features or () if fits(feature)), default=None)
