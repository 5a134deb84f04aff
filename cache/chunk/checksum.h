/*
 * checksum.h - XXH3-128 of chunks, made while copying or over bytes where they lie.
 *
 * A chunk may lie in several segments; its checksum is that of the bytes one after another, no
 * matter how they are cut. xxHash's run-time dispatch is used, in pieces of 64 KiB or more.
 * Pure functions; any thread.
 */
#ifndef KVT_CHECKSUM_H
#define KVT_CHECKSUM_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

void kvt_checksum_segments(
	const struct kvt_segment *segments, size_t count, uint64_t bytes, struct kvt_checksum *out);

/* Do these bytes have this checksum? */
bool kvt_checksum_holds(const struct kvt_segment *segments, size_t count, uint64_t bytes,
	const struct kvt_checksum *sum) KVT_MUST_CHECK;

/* Copy and checksum at once; kvt_fill is this. */
void kvt_checksum_copy(const struct kvt_segment *to, size_t count, const void *from, uint64_t bytes,
	struct kvt_checksum *out);

/*
 * From segments that others may be writing at the same time (memory shared with another process)
 * into one's own, both lists at least `bytes` long. Every byte of the source is read once, so that
 * the checksum is that of what arrived, whatever became of the source since. Returns the bytes that
 * were there in both lists; the checksum is of these.
 */
uint64_t kvt_checksum_take(const struct kvt_segment *to, size_t to_count,
	const struct kvt_segment *from, size_t from_count, uint64_t bytes,
	struct kvt_checksum *out);

/*
 * The checksums of a chunk's pieces, `piece` bytes each and the rest of it last, each of its own bytes
 * alone, and that of the whole: of one reading of memory. `pieces` has room for kvt_checksum_count(). Where another
 * process writes there meanwhile, and writes nothing back: if the whole's is that of before, so are the pieces'.
 */
void kvt_checksum_pieces(const struct kvt_segment *segments, size_t count, uint64_t bytes,
	uint64_t piece, struct kvt_checksum *pieces, struct kvt_checksum *whole);
static inline uint64_t kvt_checksum_count(uint64_t bytes, uint64_t piece)
{
	return bytes / piece + (bytes % piece != 0);
}

/* Both: copies, and makes the checksums of pieces and whole. piece 0: the whole's alone, pieces may be NULL. */
void kvt_checksum_copy_pieces(const struct kvt_segment *to, size_t count, const void *from, uint64_t bytes,
	uint64_t piece, struct kvt_checksum *pieces, struct kvt_checksum *whole);

/* Of bytes that come piece by piece. Pieces of 64 KiB or more cost what the functions above do;
 * smaller ones are right, but slower. */
struct kvt_checksum_stream {
	_Alignas(64) unsigned char state[576]; /* xxHash's */
};
void kvt_checksum_begin(struct kvt_checksum_stream *stream);
void kvt_checksum_update(struct kvt_checksum_stream *stream, const void *bytes, uint64_t count);
void kvt_checksum_end(const struct kvt_checksum_stream *stream, struct kvt_checksum *out);

static inline bool kvt_checksum_equal(const struct kvt_checksum *a, const struct kvt_checksum *b)
{
	return a->low == b->low && a->high == b->high;
}

#endif
