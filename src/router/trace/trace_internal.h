/*
 * trace_internal.h - the words of a record and the loop's own state of it. Private to this room.
 *
 * trace.c says how records are taken, written and read.
 */
#ifndef KVW_TRACE_INTERNAL_H
#define KVW_TRACE_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>

#include "trace/trace.h"

/* Indices of a record's words, in the order in which a reader copies them: the contents of a word
 * may refer only to later words. */
enum {
	WORD_VERSION,
	WORD_ENDED,
	WORD_STATE,  /* numbers of notes, of words of text, and of skipped notes */
	WORD_RESULT, /* status, end, failed, api */
	WORD_TOTAL,  /* ns */
	WORD_NAMES,  /* for id, model, path and asked model: the first word and the length */
	WORD_WALL,
	WORD_START,
	WORD_NOTES,
	WORD_TEXT = WORD_NOTES + 2 * KVW_TRACE_NOTES,
	/* The rest is written only where requests have a trace context. */
	WORD_SPAN = WORD_TEXT + KVW_TRACE_TEXT / 8, /* 0: the request has no context */
	WORD_TRACE,                                 /* 2 words */
	WORD_PARENT = WORD_TRACE + 2,
	WORD_EXPORT, /* enum kvw_trace_export, flags of the context, what of the usage is known */
	WORD_TOKENS, /* prompt, completion */
	WORD_CACHED,
	WORD_STRATEGY, /* address of the strategy's name, which is static */
	WORDS,
};

static_assert(WORDS == 200, "a record is 1.6 KB");

#define NONE UINT32_MAX /* no index of a record */

typedef _Atomic uint64_t word;

/* State of a record that only the loop uses. */
struct kvw_trace_way {
	word *words;
	struct kvw_trace_ring *ring;
	int64_t start_ns;
	uint64_t names, version;
	uint32_t next; /* index of the next record in the same queue */
	uint16_t skipped;
	uint8_t notes, texts; /* how many notes and words of text are in use */
	bool asked;           /* an attempt is under way, and not ended yet */
	bool client_noted;
	uint8_t calls;                    /* attempts and legs so far */
	uint8_t attempt;                  /* number of the present attempt among them */
	struct kvw_trace_context context; /* span 0: the request has none */
};

struct queue {
	uint32_t first, last; /* NONE: empty */
	size_t count;
};

/* Records of ended requests that wait for their export. The loop puts, one other thread takes; the
 * loop then uses the taken ones again. Positions only grow. */
struct outbox {
	_Atomic uint32_t *indices; /* owned; [most]; NULL: nothing is exported */
	uint64_t most;
	_Atomic uint64_t put;
	uint64_t reclaimed; /* the loop's */
	char before[64];    /* keeps the next member on a cache line of its own */
	_Atomic uint64_t taken;
	char behind[64];
};

struct kvw_trace_ring {
	word *words;                /* owned; of all records */
	struct kvw_trace_way *ways; /* owned; [records] */
	struct queue free, quick, kept;
	size_t kept_most, quick_most;
	_Atomic uint64_t ended;

	/* --- export of spans (join.c) --- */
	struct kvw_trace_sampling sampling;
	struct outbox outbox;
	uint64_t random;     /* state of kvw_random */
	int64_t tail_second; /* second in which tail_count requests were kept by their end */
	uint32_t tail_count;
	_Atomic uint64_t dropped[KVW_TRACE_DROPS];
};

struct kvw_trace {
	struct kvw_trace_options options;
	size_t records; /* of each ring */
	int64_t born_ns;
	struct kvw_trace_ring *rings[]; /* owned; [options.loops] */
};

static inline void store(word *at, uint64_t value)
{
	atomic_store_explicit(at, value, memory_order_release);
}

static inline uint64_t load(const word *at)
{
	return atomic_load_explicit(at, memory_order_acquire);
}

static inline void push(struct kvw_trace_ring *ring, struct queue *queue, uint32_t index)
{
	ring->ways[index].next = NONE;
	if (queue->count++ == 0)
		queue->first = index;
	else
		ring->ways[queue->last].next = index;
	queue->last = index;
}

static inline uint32_t pop(struct kvw_trace_ring *ring, struct queue *queue)
{
	uint32_t index = queue->first;

	if (queue->count == 0)
		return NONE;
	queue->count--;
	queue->first = ring->ways[index].next;
	return index;
}

/* --- put.c --- */

/* Returns the free bytes for texts. */
size_t kvw_trace_room(const struct kvw_trace_way *way);
/* Copies at most `most` bytes to the record's texts. Returns the text's word and length in the form
 * that notes have; 0: there is no room. */
unsigned kvw_trace_put_text(struct kvw_trace_way *way, struct kvw_slice text, size_t most);
/* Makes texts that were put visible to readers. */
void kvw_trace_publish(struct kvw_trace_way *way);
/* Gives the record of an ended request back to the loop. */
void kvw_trace_give_back(struct kvw_trace_ring *ring, uint32_t index);

/* --- join.c --- */

/* Prepares the export of a ring's requests. records: how many it has. */
enum kvw_err kvw_trace_outbox_init(struct kvw_trace_ring *ring,
	const struct kvw_trace_sampling *sampling, size_t records, uint64_t seed) KVW_MUST_CHECK;
/* Takes back the records that were exported. */
void kvw_trace_reclaim(struct kvw_trace_ring *ring);
/* Puts an ended request into the outbox if it is to be exported. False: it is not, or there is no
 * room. */
bool kvw_trace_export(struct kvw_trace_way *way, int64_t now_ns, int64_t total_ns, bool failed);

#endif
