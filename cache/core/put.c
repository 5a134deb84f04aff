/*
 * put.c - putting chunks: reserve, fill, commit.
 *
 * A chunk that is being filled is an entry of L1 that no lookup finds, with its key taken, so that
 * a second writer of the same chunk gets KVT_EXISTS and need not copy. Commit makes the checksum
 * from the bytes in the arena, publishes the chunk, and hands it to the stores (stores.c). A chunk
 * that only a lower tier has may be put: L1 then has a copy without reading, and the store finds
 * that there is nothing to do.
 *
 * A chunk whose parent is stored nowhere is refused (KVT_MISS): no get would reach it, and it would
 * take the room of chunks that a get does reach. A parent counts as stored if L1 has it or is being
 * filled with it, if a lower tier has it, or if a shared tier may have it and it was not refused
 * here lately.
 */
#include <stdlib.h>
#include <string.h>

#include "chunk/fragment_mark.h"
#include "core/lower.h"
#include "core/put.h"
#include "core/stores.h"

#define MOST_ITEMS (1u << 20)
#define LEAST_ITEM offsetof(struct kvt_item, blocks_size) /* the first version's members */
#define MOST_ITEM  4096u                                  /* bytes of a later version's */

/* One chunk of a reservation. */
struct put {
	uint32_t entry; /* KVT_NO_ENTRY: this chunk is not to be filled */
	uint64_t bytes;
	struct kvt_segment *segments;
	uint32_t segment_count;
	struct kvt_cargo *cargo; /* NULL: there is no lower tier and the chunk has no names */
};

struct kvt_reservation {
	size_t n;
	int64_t begun_ns;
	struct kvt_segment *segments;
	struct put puts[];
};

/* --- reserve ---------------------------------------------------------------------------------- */

/* An item and its blocks with all members that this library knows, whatever size the caller was
 * compiled with. */
struct whole {
	struct kvt_item item; /* its blocks pointer is NULL, or points to `blocks` below */
	struct kvt_blocks blocks;
};

static size_t lesser(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool item_read(const struct kvt_item *given, uint32_t size, struct whole *out)
{
	size_t blocks = offsetof(struct kvt_blocks, lmcache_hash);

	*out = (struct whole){0};
	if (given->size != size || size < LEAST_ITEM || size > MOST_ITEM)
		return false;
	memcpy(&out->item, given, lesser(size, sizeof(out->item)));
	if (out->item.blocks_size != 0)
		blocks = lesser(out->item.blocks_size, sizeof(out->blocks));
	if (out->item.blocks != NULL) {
		memcpy(&out->blocks, out->item.blocks, blocks);
		out->item.blocks = &out->blocks;
	}
	out->item.size = sizeof(out->item);
	out->item.blocks_size = sizeof(out->blocks);
	return out->item.bytes != 0 && (out->item.flags & ~KVT_ITEM_MEMORY) == 0 && kvt_blocks_valid(out->item.blocks) &&
	       (out->item.blocks == NULL || !kvt_key_is_fragments(&out->item.key));
}

static bool goes_down(struct kvt *k)
{
	for (size_t i = 0; i < k->lower_count; i++)
		if (k->lower[i].tier != NULL)
			return true;
	return false;
}

/* --- chains ----------------------------------------------------------------------------------- */

static uint64_t word_of(const struct kvt_key *key)
{
	uint64_t word;

	memcpy(&word, key->bytes, sizeof(word));
	return word;
}

static _Atomic uint64_t *refused_at(struct kvt *k, const struct kvt_key *key)
{
	return &k->refused_puts[word_of(key) % KVT_REFUSED_PUTS];
}

/* Remembers whether the last put of a chunk was refused. Another chunk may overwrite the mark: then
 * the first one counts again as one that a shared tier may have. */
static void note_put(struct kvt *k, const struct kvt_key *key, bool refused)
{
	_Atomic uint64_t *at = refused_at(k, key);
	uint64_t word = word_of(key);

	if (refused)
		atomic_store_explicit(at, word, memory_order_relaxed);
	else if (atomic_load_explicit(at, memory_order_relaxed) == word)
		atomic_store_explicit(at, 0, memory_order_relaxed);
}

/* Returns whether a lower tier may have the parent. The caller does not hold `lock`. */
static bool is_below(struct kvt *k, const struct kvt_key *parent)
{
	struct kvt_tier_known known;

	if (atomic_load_explicit(refused_at(k, parent), memory_order_relaxed) == word_of(parent))
		return kvt_lower_holding(k, parent, KVT_ALL_TIERS, false, &known) != NULL;
	return kvt_lower_may_have(k, parent);
}

/* Makes room for a chain that is longer than L1: the chunk takes the room of the chain's last chunk
 * in L1, once that one is stored below; its end chunks, which are its children, are evicted first.
 * Nothing is evicted if the chunk would not fit even then. */
static bool passes(struct kvt *k, const struct kvt_item *item)
{
	struct kvt_key keys[2]; /* the ends, the chunk */
	bool stored, ends_stored;

	if (item->parent == NULL)
		return false;
	kvt_key_ends(item->parent, &keys[0]);
	keys[1] = *item->parent;
	pthread_mutex_lock(&k->lock);
	stored = kvt_stores_are_over(k, &keys[1]);
	ends_stored = stored && kvt_stores_are_over(k, &keys[0]);
	pthread_mutex_unlock(&k->lock);
	return stored && kvt_l1_pass_for(k->l1, &keys[!ends_stored], ends_stored ? 2 : 1, item);
}

static void trace_put(
	struct kvt *k, const struct kvt_item *item, enum kvt_status status, int64_t begun_ns)
{
	int64_t now_ns = kvt_clock(k);
	struct kvt_trace_event event = {.at_ns = now_ns,
		.took_ns = now_ns - begun_ns,
		.bytes = item->bytes,
		.key = kvt_trace_key(&item->key),
		.what = KVT_TRACE_PUT,
		.status = (uint8_t)status};

	if (status == KVT_FULL)
		event.why = kvt_l1_is_limited(k->l1, item) ? KVT_WHY_TENANT : KVT_WHY_NO_ROOM;
	kvt_trace_note(k->trace, &event);
}

/* Reserves room in L1 for a chunk that begins a chain, or whose parent some tier has. */
static enum kvt_status reserve_room(struct kvt *k, const struct kvt_item *item, uint32_t *entry)
{
	enum kvt_status status = kvt_l1_reserve(k->l1, item, KVT_L1_CHILD, entry);

	if (status == KVT_MISS && is_below(k, item->parent))
		status = kvt_l1_reserve(k->l1, item, KVT_L1_PUT, entry);
	if (status == KVT_FULL && passes(k, item))
		status = kvt_l1_reserve(k->l1, item, KVT_L1_PUT, entry);
	note_put(k, &item->key, status != KVT_OK && status != KVT_EXISTS);
	return status;
}

static enum kvt_status reserve_one(struct kvt *k, const struct kvt_item *given, uint32_t size,
	struct kvt_segment *segments, struct put *put)
{
	struct whole whole;
	const struct kvt_item *item = &whole.item;
	enum kvt_status status;

	if (!item_read(given, size, &whole)) {
		kvt_count(&k->counters.put_blended, (whole.item.flags & KVT_ITEM_BLENDED) != 0);
		return KVT_EINVAL;
	}
	status = reserve_room(k, item, &put->entry);
	if (status != KVT_OK) {
		put->entry = KVT_NO_ENTRY;
		kvt_count(&k->counters.put_exists, status == KVT_EXISTS);
		kvt_count(&k->counters.put_full, status == KVT_FULL);
		if (status == KVT_FULL)
			kvt_l1_count_limited(k->l1, item);
		if (status != KVT_EXISTS && k->trace != NULL)
			trace_put(k, item, status, kvt_clock(k));
		return status;
	}
	if (item->blocks != NULL || (goes_down(k) && (item->flags & KVT_ITEM_MEMORY) == 0)) {
		put->cargo = kvt_cargo_make(item);
		if (put->cargo == NULL) {
			kvt_l1_discard(k->l1, put->entry);
			put->entry = KVT_NO_ENTRY;
			return KVT_ENOMEM;
		}
		put->cargo->users = 1;
		if (item->tokens == 0)
			put->cargo->item.tokens = k->config.tokens_per_chunk;
	}
	put->bytes = item->bytes;
	put->segments = segments;
	put->segment_count = kvt_l1_segments(k->l1, put->entry, segments);
	return KVT_OK;
}

static struct kvt_reservation *make(size_t n)
{
	struct kvt_reservation *r;

	if (n > MOST_ITEMS)
		return NULL;
	r = calloc(1, sizeof(*r) + n * sizeof(r->puts[0]));
	if (r == NULL)
		return NULL;
	r->n = n;
	r->segments = malloc(n * KVT_MAX_EXTENTS * sizeof(*r->segments));
	if (r->segments == NULL) {
		free(r);
		return NULL;
	}
	return r;
}

static void destroy(struct kvt_reservation *r)
{
	free(r->segments);
	free(r);
}

static enum kvt_status try_one(
	struct kvt *k, const struct kvt_item *items, struct kvt_reservation *r, size_t i)
{
	const char *at = (const char *)items + i * items->size;

	return reserve_one(k, (const struct kvt_item *)at, items->size,
		&r->segments[i * KVT_MAX_EXTENTS], &r->puts[i]);
}

/* Reserves room for each item; items that stand before their parents are tried again, from the last
 * on. Returns whether any has room. */
static bool reserve_all(
	struct kvt *k, const struct kvt_item *items, struct kvt_reservation *r, uint32_t *status)
{
	bool any = false;
	size_t orphans = 0;

	for (size_t i = 0; i < r->n; i++) {
		r->puts[i].entry = KVT_NO_ENTRY;
		status[i] = try_one(k, items, r, i);
	}
	for (size_t i = r->n; i-- > 0;) {
		if (status[i] == KVT_MISS && any)
			status[i] = try_one(k, items, r, i);
		any = any || status[i] == KVT_OK;
		orphans += status[i] == KVT_MISS;
	}
	kvt_count(&k->counters.put_orphans, orphans);
	return any;
}

/* Moves the segments of all puts together, without gaps. */
static void close_ranks(struct kvt_reservation *r, uint32_t *counts)
{
	struct kvt_segment *next = r->segments;

	for (size_t i = 0; i < r->n; i++) {
		struct put *put = &r->puts[i];

		counts[i] = put->segment_count;
		if (counts[i] != 0)
			memmove(next, put->segments, counts[i] * sizeof(*next));
		put->segments = next;
		next += counts[i];
	}
}

enum kvt_status kvt_put_reserve(struct kvt *k, const struct kvt_item *items, size_t n,
	struct kvt_reservation **out, const struct kvt_segment **segments, uint32_t *counts,
	uint32_t *status)
{
	enum kvt_status usable = kvt_usable(k);
	struct kvt_reservation *r;

	if (usable != KVT_OK)
		return usable;
	if (items == NULL || n == 0 || n > MOST_ITEMS || out == NULL || segments == NULL ||
		counts == NULL || status == NULL)
		return KVT_EINVAL;
	r = make(n);
	if (r == NULL)
		return KVT_ENOMEM;
	r->begun_ns = kvt_clock(k);
	if (!reserve_all(k, items, r, status)) {
		memset(counts, 0, n * sizeof(*counts));
		destroy(r);
		return (enum kvt_status)status[0];
	}
	close_ranks(r, counts);
	*out = r;
	*segments = r->segments;
	return KVT_OK;
}

/* --- commit and abort ------------------------------------------------------------------------- */

static void drop(struct kvt *k, struct put *put)
{
	if (put->entry == KVT_NO_ENTRY)
		return;
	note_put(k, kvt_l1_key(k->l1, put->entry), true);
	kvt_l1_discard(k->l1, put->entry);
	kvt_cargo_free(put->cargo); /* no other thread has seen the cargo */
}

static void send_down(struct kvt *k, struct kvt_cargo *cargo, bool published)
{
	if (cargo == NULL)
		return;
	pthread_mutex_lock(&k->lock);
	if (published)
		kvt_stores_add(k, cargo);
	kvt_cargo_leave(cargo);
	kvt_stores_pump(k);
	pthread_mutex_unlock(&k->lock);
}

/* Returns how many bytes a piece has whose checksums a lower tier wants; 0: no tier wants them. */
static uint64_t pieces_wanted(struct kvt *k, const struct put *put)
{
	uint64_t most = 0;

	for (size_t i = 0; put->cargo != NULL && i < k->lower_count; i++) {
		struct kvt_tier *tier = atomic_load(&k->lower[i].tier);

		if (tier != NULL && tier->piece_bytes > most)
			most = tier->piece_bytes;
	}
	return put->bytes > most ? most : 0;
}

/* Computes the checksum of a chunk, and those of its pieces, in one pass, while the bytes are in
 * the processor's cache. from: copies the chunk from there; NULL: the chunk lies in memory
 * already. */
static void sum_it(struct kvt *k, struct put *put, const void *from, struct kvt_checksum *out)
{
	uint64_t piece = pieces_wanted(k, put);
	struct kvt_checksum *pieces = NULL;

	if (piece > 0)
		pieces = calloc(kvt_checksum_count(put->bytes, piece), sizeof(*pieces));
	if (pieces == NULL)
		piece = 0; /* the length does not fit, or memory is out: the tier makes them */
	if (from != NULL)
		kvt_checksum_copy_pieces(put->segments, put->segment_count, from, put->bytes, piece, pieces, out);
	else if (pieces != NULL)
		kvt_checksum_pieces(put->segments, put->segment_count, put->bytes, piece, pieces, out);
	else
		kvt_checksum_segments(put->segments, put->segment_count, put->bytes, out);
	if (pieces == NULL)
		return;
	put->cargo->pieces = pieces;
	put->cargo->whole = *out;
	put->cargo->piece_bytes = piece;
}

/* Publishes one chunk. KVT_MISS: it was erased while it was filled. */
static enum kvt_status commit_one(
	struct kvt *k, struct put *put, const struct kvt_checksum *given, int64_t begun_ns)
{
	const struct kvt_blocks *names = put->cargo != NULL ? put->cargo->item.blocks : NULL;
	struct kvt_checksum sum;
	enum kvt_status status;

	if (put->entry == KVT_NO_ENTRY)
		return KVT_OK;
	if (given != NULL)
		sum = *given;
	else
		sum_it(k, put, NULL, &sum);
	status = kvt_l1_publish(k->l1, put->entry, &sum, names);
	if (status == KVT_OK) {
		kvt_count(&k->counters.puts, 1);
		kvt_count(&k->counters.put_bytes, put->bytes);
	}
	if (k->trace != NULL)
		trace_put(k,
			&(struct kvt_item){
				.key = *kvt_l1_key(k->l1, put->entry), .bytes = put->bytes},
			status, begun_ns);
	send_down(k, put->cargo, status == KVT_OK);
	kvt_l1_release(k->l1, put->entry);
	return status;
}

enum kvt_status kvt_put_commit(struct kvt *k, struct kvt_reservation *r, size_t ready,
	const struct kvt_checksum *checksums)
{
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK)
		return status;
	if (r == NULL)
		return KVT_EINVAL;
	for (size_t i = 0; i < r->n; i++) {
		if (i < ready)
			(void)!commit_one(k, &r->puts[i], checksums != NULL ? &checksums[i] : NULL,
				r->begun_ns);
		else
			drop(k, &r->puts[i]);
	}
	kvt_took(k, KVT_LATENCY_PUT, r->begun_ns);
	destroy(r);
	return KVT_OK;
}

enum kvt_status kvt_put_publish(struct kvt *k, struct kvt_reservation *r, const struct kvt_checksum *sum)
{
	enum kvt_status status = commit_one(k, &r->puts[0], sum, r->begun_ns);

	kvt_took(k, KVT_LATENCY_PUT, r->begun_ns);
	destroy(r);
	return status;
}

void kvt_put_abort(struct kvt *k, struct kvt_reservation *r)
{
	if (r == NULL || kvt_usable(k) != KVT_OK)
		return;
	for (size_t i = 0; i < r->n; i++)
		drop(k, &r->puts[i]);
	destroy(r);
}

void kvt_fill(const struct kvt_segment *segments, size_t count, const void *from, uint64_t bytes,
	struct kvt_checksum *out)
{
	kvt_checksum_copy(segments, count, from, bytes, out);
}

enum kvt_status kvt_put(struct kvt *k, const struct kvt_item *item, const void *bytes)
{
	const struct kvt_segment *segments;
	struct kvt_reservation *r;
	struct kvt_checksum sum;
	enum kvt_status status;
	uint32_t count, each;

	if (item == NULL || bytes == NULL)
		return KVT_EINVAL;
	status = kvt_put_reserve(k, item, 1, &r, &segments, &count, &each);
	if (status != KVT_OK)
		return status;
	sum_it(k, &r->puts[0], bytes, &sum);
	return kvt_put_commit(k, r, 1, &sum);
}
