/*
 * checksum.c - XXH3-128 of bytes in several pieces, while copying them or in place.
 *
 * The streaming state makes the cut of the segments invisible. Copying goes in pieces: hashing brings the source's
 * piece into the core's own cache, and the copy reads the piece from there, so that memory is read once. Streaming
 * stores write a large chunk past the cache: the cached lines are worth more than the chunk, whose next reader comes
 * later or is a device, and no line need be read before it is overwritten. Measured over 1 GiB of 4 MiB chunks, as
 * ratios to memcpy:
 *
 * 	memcpy, then hash all                   0.68
 * 	copy 64 KiB, hash the copy              0.82
 * 	hash 64 KiB, copy by memcpy             0.81
 * 	hash 64 KiB, copy by streaming stores   1.20   (pieces of 16 and 256 KiB: the same)
 *
 * Bytes that another process may change meanwhile must not be read twice, or the checksum could differ from that of the
 * copy. They pass through a buffer that stays in the core's nearest cache, where they are hashed (1.37 times memcpy and
 * a hash after it):
 *
 * 	hash the copy in pieces of 64 KiB       0.85
 * 	through 16 KiB (64 KiB: 0.85)           0.94
 * 	pread(2) of the file instead            0.61
 *
 * The distribution's library is compiled for SSE2 and also has AVX2 and AVX-512 variants, which only the functions of
 * xxh_x86dispatch.h reach: 19 against 33 GB/s on one machine. The values are the same.
 */
#define XXH_STATIC_LINKING_ONLY /* the state may lie on the stack, with the required alignment */

#include "chunk/checksum.h"
#include "chunk/streaming.h"

#include <string.h>
#include <xxhash.h>
#ifdef KVT_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* from here on the names mean the dispatching functions */
#endif

#define PIECE ((uint64_t)64 * 1024)
#define LARGE ((uint64_t)256 * 1024)
#define NEAR  ((uint64_t)16 * 1024) /* bytes that pass through the core's nearest cache at once */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void give(XXH128_hash_t hash, struct kvt_checksum *out)
{
	out->low = hash.low64;
	out->high = hash.high64;
}

void kvt_checksum_segments(
	const struct kvt_segment *segments, size_t count, uint64_t bytes, struct kvt_checksum *out)
{
	XXH3_state_t state;

	if (count > 0 && segments[0].bytes >= bytes) {
		give(XXH3_128bits(segments[0].base, bytes), out);
		return;
	}
	(void)XXH3_128bits_reset(&state); /* none of these fails with a state that is there */
	for (size_t i = 0; i < count && bytes > 0; i++) {
		uint64_t here = least(segments[i].bytes, bytes);

		(void)XXH3_128bits_update(&state, segments[i].base, here);
		bytes -= here;
	}
	give(XXH3_128bits_digest(&state), out);
}

bool kvt_checksum_holds(const struct kvt_segment *segments, size_t count, uint64_t bytes,
	const struct kvt_checksum *sum)
{
	struct kvt_checksum found;

	kvt_checksum_segments(segments, count, bytes, &found);
	return kvt_checksum_equal(&found, sum);
}

/*
 * Copies without bringing the target into the cache: writes whole lines of `to` past it. Other
 * threads may see the bytes only after the fence at the end.
 */
static void copy_past_cache(char *to, const char *from, size_t n)
{
	size_t head = least((uint64_t)(-(uintptr_t)to % KVT_STREAM_LINE), n);
	size_t lines = (n - head) / KVT_STREAM_LINE * KVT_STREAM_LINE;

	memcpy(to, from, head);
	kvt_stream_lines(to + head, from + head, lines);
	memcpy(to + head + lines, from + head + lines, n - head - lines);
}

/* The checksum of a whole, and on request those of its pieces, from one reading of memory. */
struct sums {
	XXH3_state_t all, one;
	uint64_t piece; /* bytes of a piece; 0: only the whole chunk's checksum is wanted */
	uint64_t in_piece; /* bytes of the piece that is being hashed that `one` has taken in */
	struct kvt_checksum *next; /* where the next piece's checksum is written */
};

static void sums_begin(struct sums *s, uint64_t piece, struct kvt_checksum *pieces)
{
	s->piece = piece;
	s->in_piece = 0;
	s->next = pieces;
	(void)XXH3_128bits_reset(&s->all); /* none of these fails with a state that is there */
	if (piece > 0)
		(void)XXH3_128bits_reset(&s->one);
}

/* Returns how many of `most` bytes may be added in one step. */
static uint64_t sums_room(const struct sums *s, uint64_t most)
{
	most = least(most, PIECE);
	return s->piece > 0 ? least(most, s->piece - s->in_piece) : most;
}

static void end_piece(struct sums *s)
{
	give(XXH3_128bits_digest(&s->one), s->next++);
	(void)XXH3_128bits_reset(&s->one);
	s->in_piece = 0;
}

/* Hashes the piece first and the whole second, from the core's own cache. If another process
 * overwrites bytes meanwhile, the whole's hash has the newer ones: a whole's checksum of the old
 * bytes proves the pieces' too. */
static void sums_add(struct sums *s, const void *here, uint64_t n)
{
	if (s->piece > 0)
		(void)XXH3_128bits_update(&s->one, here, n);
	(void)XXH3_128bits_update(&s->all, here, n);
	if (s->piece == 0)
		return;
	s->in_piece += n;
	if (s->in_piece == s->piece)
		end_piece(s);
}

static void sums_end(struct sums *s, struct kvt_checksum *whole)
{
	if (s->in_piece > 0)
		end_piece(s);
	give(XXH3_128bits_digest(&s->all), whole);
}

/* Copies `bytes` of a segment to their counterpart in one run; `large`: the whole chunk does not
 * fit the core's cache. */
static void copy_run(struct sums *sums, char *to, const char *from, uint64_t bytes, bool large)
{
	for (uint64_t at = 0, n; at < bytes; at += n) {
		n = sums_room(sums, bytes - at);
		sums_add(sums, from + at, n);
		if (large)
			copy_past_cache(to + at, from + at, n);
		else
			memcpy(to + at, from + at, n);
	}
}

void kvt_checksum_copy_pieces(const struct kvt_segment *to, size_t count, const void *from, uint64_t bytes,
	uint64_t piece, struct kvt_checksum *pieces, struct kvt_checksum *whole)
{
	struct sums sums;
	uint64_t at = 0;

	sums_begin(&sums, piece, pieces);
	for (size_t i = 0; i < count && at < bytes; i++) {
		uint64_t here = least(to[i].bytes, bytes - at);

		copy_run(&sums, to[i].base, (const char *)from + at, here, bytes >= LARGE);
		at += here;
	}
	kvt_stream_fence();
	sums_end(&sums, whole);
}

void kvt_checksum_copy(const struct kvt_segment *to, size_t count, const void *from, uint64_t bytes,
	struct kvt_checksum *out)
{
	kvt_checksum_copy_pieces(to, count, from, bytes, 0, NULL, out);
}

/* A position in a list of segments. */
struct cursor {
	const struct kvt_segment *at, *end;
	uint64_t used; /* bytes of *at that are used */
};

/* Returns the length of the run of bytes from this position on; 0: the end. */
static uint64_t run_of(struct cursor *c)
{
	while (c->at < c->end && c->used == c->at->bytes) {
		c->at++;
		c->used = 0;
	}
	return c->at < c->end ? c->at->bytes - c->used : 0;
}

static char *move_on(struct cursor *c, uint64_t bytes)
{
	char *here = (char *)c->at->base + c->used;

	c->used += bytes;
	return here;
}

uint64_t kvt_checksum_take(const struct kvt_segment *to, size_t to_count,
	const struct kvt_segment *from, size_t from_count, uint64_t bytes, struct kvt_checksum *out)
{
	struct cursor source = {.at = from, .end = from + from_count};
	struct cursor target = {.at = to, .end = to + to_count};
	_Alignas(64) char near[NEAR];
	XXH3_state_t state;
	uint64_t done = 0;

	(void)XXH3_128bits_reset(&state);
	while (done < bytes) {
		uint64_t n = least(least(run_of(&source), run_of(&target)), bytes - done);

		n = least(n, NEAR);
		if (n == 0)
			break;
		memcpy(near, move_on(&source, n), n);
		(void)XXH3_128bits_update(&state, near, n);
		if (bytes >= LARGE)
			copy_past_cache(move_on(&target, n), near, n);
		else
			memcpy(move_on(&target, n), near, n);
		done += n;
	}
	kvt_stream_fence();
	give(XXH3_128bits_digest(&state), out);
	return done;
}

void kvt_checksum_pieces(const struct kvt_segment *segments, size_t count, uint64_t bytes,
	uint64_t piece, struct kvt_checksum *pieces, struct kvt_checksum *whole)
{
	struct cursor source = {.at = segments, .end = segments + count};
	struct sums sums;
	uint64_t n;

	sums_begin(&sums, piece, pieces);
	for (; bytes > 0 && (n = least(run_of(&source), bytes)) > 0; bytes -= n) {
		n = sums_room(&sums, n);
		sums_add(&sums, move_on(&source, n), n);
	}
	sums_end(&sums, whole);
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(((struct kvt_checksum_stream *)NULL)->state) &&
		       _Alignof(XXH3_state_t) <= _Alignof(struct kvt_checksum_stream),
	"xxHash's state has outgrown its room");

void kvt_checksum_begin(struct kvt_checksum_stream *stream)
{
	(void)XXH3_128bits_reset((XXH3_state_t *)(void *)stream->state);
}

void kvt_checksum_update(struct kvt_checksum_stream *stream, const void *bytes, uint64_t count)
{
	(void)XXH3_128bits_update((XXH3_state_t *)(void *)stream->state, bytes, count);
}

void kvt_checksum_end(const struct kvt_checksum_stream *stream, struct kvt_checksum *out)
{
	give(XXH3_128bits_digest((const XXH3_state_t *)(const void *)stream->state), out);
}
