/*
 * trace.c - records that one loop writes and any thread reads (read.c).
 *
 *	    taken by a request that begins                     its request has ended
 *	+------------------------------- free, oldest first <-----------------+
 *	|                                         ^ beyond `kept`             |
 *	+-> under way --- ended well -------------|---------------------------+
 *	|          \----- failed --------> kept, oldest first                 |
 *	+------------------------------- quick, oldest first <----------------+ within QUICK_NS
 *
 * Records of `quick` are taken first once there are quick_most of them. So a loop that answers
 * thousands of quick requests a second uses few records, which stay in the CPU's cache, and does
 * not evict those of slow requests.
 *
 * Only the loop uses its queues. Readers see the records: 200 atomic words of 8 bytes, of which the
 * first is the version. A loop that takes a record makes the version odd, writes the head, and
 * makes the version even. After that notes are only added: a note's words and its text first, then
 * the word that counts them. A reader copies the words in order between two reads of the version;
 * if it is even and unchanged, the copy is one request's, complete up to its count. All stores are
 * releases and all loads acquires (Boehm, "Can seqlocks get along with programming language memory
 * models?", MSPC 2012, section 4): on x86 these are plain moves, and a fence, which ThreadSanitizer
 * does not know, is not needed.
 *
 * A note costs four stores, without a system call or reading the clock. Memory: 1.6 KB for each
 * record and 104 bytes of the loop's own.
 */
#include "trace/trace_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

/* number of notes that states, steps and timers leave free for attempts, clients and the end */
#define SPARE          8
#define TEXT_MOST      160 /* most bytes that are kept of a note's text */
#define KNOWLEDGE_MOST 48  /* the longest name of enum kvw_knowledge is shorter */
#define PREFETCH_BYTES 384 /* bytes that the head and the notes of a usual request take */
#define PREFETCH_TEXT  128 /* bytes that its texts take: id, model, step */
#define QUICK_LEAST    64
#define QUICK_SHARE    16 /* quick_most is at least all records divided by this */

/* --- life --- */

static void ring_destroy(struct kvw_trace_ring *ring)
{
	if (ring == NULL)
		return;
	free(ring->words);
	free(ring->ways);
	free((void *)ring->outbox.indices);
	free(ring);
}

static struct kvw_trace_ring *ring_create(size_t records, size_t kept)
{
	struct kvw_trace_ring *ring = calloc(1, sizeof(*ring));

	if (ring == NULL)
		return NULL;
	ring->words = calloc(records, WORDS * sizeof(*ring->words)); /* untouched until used */
	ring->ways = calloc(records, sizeof(*ring->ways));
	ring->kept_most = kept;
	ring->quick_most =
		records / QUICK_SHARE > QUICK_LEAST ? records / QUICK_SHARE : QUICK_LEAST;
	if (ring->words == NULL || ring->ways == NULL) {
		ring_destroy(ring);
		return NULL;
	}
	for (size_t i = 0; i < records; i++) {
		ring->ways[i].words = ring->words + i * WORDS;
		ring->ways[i].ring = ring;
		push(ring, &ring->free, (uint32_t)i);
	}
	return ring;
}

static uint64_t random_seed(void)
{
	uint64_t seed = (uint64_t)kvw_clock_wall_ns();

	(void)!getrandom(&seed, sizeof(seed), 0);
	return seed;
}

enum kvw_err kvw_trace_create(const struct kvw_trace_options *options, struct kvw_trace **out)
{
	struct kvw_trace *trace = NULL;

	if (options->requests > 0) {
		trace = calloc(1, sizeof(*trace) + options->loops * sizeof(trace->rings[0]));
		if (trace == NULL)
			return KVW_ENOMEM;
		trace->options = *options;
		trace->records = options->requests + options->kept;
		trace->born_ns = kvw_clock_wall_ns();
		for (size_t i = 0; i < options->loops; i++) {
			trace->rings[i] = ring_create(trace->records, options->kept);
			if (trace->rings[i] == NULL ||
				kvw_trace_outbox_init(trace->rings[i], &options->sampling,
					options->requests, random_seed()) != KVW_OK) {
				kvw_trace_destroy(trace);
				return KVW_ENOMEM;
			}
		}
	}
	*out = trace;
	return KVW_OK;
}

void kvw_trace_destroy(struct kvw_trace *trace)
{
	if (trace == NULL)
		return;
	for (size_t i = 0; i < trace->options.loops; i++)
		ring_destroy(trace->rings[i]);
	free(trace);
}

struct kvw_trace_ring *kvw_trace_ring(struct kvw_trace *trace, size_t loop)
{
	return trace == NULL ? NULL : trace->rings[loop];
}

/* --- writing --- */

/* Returns the queue from which the next request takes its record. */
static struct queue *source_of(struct kvw_trace_ring *ring)
{
	return ring->quick.count >= ring->quick_most || ring->free.count == 0 ? &ring->quick
									      : &ring->free;
}

/* Records in `free` are no longer in the cache when they are taken. So the next one is prefetched
 * while this request is served. */
static void prefetch_next(struct kvw_trace_ring *ring)
{
	const struct queue *source = source_of(ring);
	const char *next;

	if (source->count == 0)
		return;
	next = (const char *)ring->ways[source->first].words;
	for (size_t line = 0; line < PREFETCH_BYTES; line += 64)
		__builtin_prefetch(next + line, 1);
	for (size_t line = 0; line < PREFETCH_TEXT; line += 64)
		__builtin_prefetch(next + 8 * WORD_TEXT + line, 1);
	if (ring->sampling.on)
		__builtin_prefetch(next + 8 * WORD_SPAN, 1);
}

struct kvw_trace_way *kvw_trace_begin(
	struct kvw_trace_ring *ring, int64_t start_ns, int64_t wall_ns)
{
	struct kvw_trace_way *way;
	uint64_t version;
	uint32_t index;

	if (ring == NULL)
		return NULL;
	if (ring->sampling.on)
		kvw_trace_reclaim(ring);
	index = pop(ring, source_of(ring));
	if (index == NONE)
		return NULL;
	way = &ring->ways[index];
	version = way->version;
	*way = (struct kvw_trace_way){.words = way->words,
		.ring = ring,
		.start_ns = start_ns,
		.version = version + 2,
		.next = NONE};
	prefetch_next(ring);
	store(&way->words[WORD_VERSION], version + 1);
	store(&way->words[WORD_ENDED], 0);
	store(&way->words[WORD_STATE], 0);
	store(&way->words[WORD_RESULT], 0);
	store(&way->words[WORD_NAMES], 0);
	store(&way->words[WORD_WALL], (uint64_t)wall_ns);
	store(&way->words[WORD_START], (uint64_t)start_ns);
	if (ring->sampling.on) {
		store(&way->words[WORD_SPAN], 0);
		store(&way->words[WORD_EXPORT], 0);
	}
	store(&way->words[WORD_VERSION], version + 2);
	return way;
}

void kvw_trace_name(struct kvw_trace_way *way, struct kvw_slice id, enum kvw_api api)
{
	if (way == NULL)
		return;
	way->names = kvw_trace_put_text(way, id, KVW_TRACE_ID_MOST);
	kvw_trace_publish(way);
	store(&way->words[WORD_NAMES], way->names);
	store(&way->words[WORD_RESULT], (uint64_t)api << 32);
}

void kvw_trace_model(struct kvw_trace_way *way, struct kvw_slice model)
{
	if (way == NULL || model.len == 0 || (way->names >> 16 & 0xffff) != 0)
		return;
	way->names |= (uint64_t)kvw_trace_put_text(way, model, KVW_TRACE_MODEL_MOST)
		      << 16;
	kvw_trace_publish(way);
	store(&way->words[WORD_NAMES], way->names);
}

/* Returns whether notes of this kind, which may be many, must leave room for rarer kinds. */
static bool leaves_room(enum kvw_trace_kind kind)
{
	return kind <= KVW_TRACE_WAIT || kind == KVW_TRACE_TIMER;
}

/* Returns how many notes there may be before one of this kind; one place is reserved for the
 * end. */
static size_t room_of(enum kvw_trace_kind kind)
{
	if (kind == KVW_TRACE_END)
		return KVW_TRACE_NOTES;
	return KVW_TRACE_NOTES - (leaves_room(kind) ? SPARE : 1);
}

void kvw_trace_put(struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_kind kind,
	unsigned code, uint64_t number, uint32_t more, struct kvw_slice text)
{
	int64_t after_us = (now_ns - way->start_ns) / 1000;
	uint64_t at_us = after_us < 0 ? 0 : after_us > UINT32_MAX ? UINT32_MAX : (uint64_t)after_us;
	word *note = &way->words[WORD_NOTES + 2 * way->notes];
	uint64_t of_text;

	if (kind == KVW_TRACE_ATTEMPT || kind == KVW_TRACE_LEG)
		way->calls++;
	if (kind == KVW_TRACE_ATTEMPT) {
		way->asked = true;
		way->attempt = way->calls;
	}
	if (way->notes >= room_of(kind) ||
		(leaves_room(kind) && text.len > 0 && kvw_trace_text_room(way) < TEXT_MOST)) {
		way->skipped += way->skipped < UINT16_MAX;
		kvw_trace_publish(way);
		return;
	}
	of_text = text.len == 0 ? 0 : kvw_trace_put_text(way, text, TEXT_MOST);
	store(&note[0],
		at_us | (uint64_t)kind << 32 | (uint64_t)(code & 0xff) << 40 | of_text << 48);
	store(&note[1], (number > UINT32_MAX ? UINT32_MAX : number) | (uint64_t)more << 32);
	way->notes++;
	kvw_trace_publish(way);
}

void kvw_trace_put_limit(struct kvw_trace_way *way, int64_t now_ns, int64_t until_ns)
{
	int64_t ms = (until_ns - now_ns + KVW_NS_PER_MS - 1) / KVW_NS_PER_MS;
	word *note;

	if (way->notes == 0 || way->skipped > 0 || ms <= 0)
		return;
	note = &way->words[WORD_NOTES + 2 * (way->notes - 1)];
	store(&note[1], (load(&note[1]) & ~(uint64_t)UINT32_MAX) |
				(uint64_t)(ms > UINT32_MAX ? UINT32_MAX : ms));
}

/* The text of an attempt: 8 bytes of its prefix, then the name of what its decision knew. */
void kvw_trace_put_attempt(struct kvw_trace_way *way, int64_t now_ns, uint32_t worker,
	const struct kvw_decision *decision, uint64_t prefix, struct kvw_slice knowledge)
{
	char text[sizeof(prefix) + KNOWLEDGE_MOST];
	size_t len = knowledge.len < KNOWLEDGE_MOST ? knowledge.len : KNOWLEDGE_MOST;

	memcpy(text, &prefix, sizeof(prefix));
	if (len > 0)
		memcpy(text + sizeof(prefix), knowledge.data, len);
	if (prefix != 0 || len > 0)
		len += sizeof(prefix);
	kvw_trace_put(way, now_ns, KVW_TRACE_ATTEMPT, decision->reason,
		kvw_decision_cached(decision), worker, (struct kvw_slice){text, len});
}

void kvw_trace_put_client(struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_client what)
{
	if (!way->client_noted)
		kvw_trace_note(way, now_ns, KVW_TRACE_CLIENT, what);
	way->client_noted = true;
}

void kvw_trace_put_attempt_end(struct kvw_trace_way *way, int64_t now_ns)
{
	if (way->asked)
		kvw_trace_note(way, now_ns, KVW_TRACE_ATTEMPT_END, 0);
	way->asked = false;
}

void kvw_trace_put_end(
	struct kvw_trace_way *way, int64_t now_ns, enum kvw_end end, int status, enum kvw_api api)
{
	struct kvw_trace_ring *ring = way->ring;
	bool failed = status >= 500 || end == KVW_END_UPSTREAM_LOST || end == KVW_END_TIMEOUT;
	uint64_t ended = atomic_load_explicit(&ring->ended, memory_order_relaxed) + 1;

	kvw_trace_note(way, now_ns, KVW_TRACE_END, end);
	store(&way->words[WORD_RESULT], ((uint64_t)status & 0xffff) | (uint64_t)end << 16 |
						(uint64_t)failed << 24 | (uint64_t)api << 32);
	store(&way->words[WORD_TOTAL], (uint64_t)(now_ns - way->start_ns));
	store(&way->words[WORD_ENDED], ended);
	atomic_store_explicit(&ring->ended, ended, memory_order_release);
	if (!kvw_trace_export(way, now_ns, now_ns - way->start_ns, failed || status == 429))
		kvw_trace_give_back(ring, (uint32_t)(way - ring->ways));
}
