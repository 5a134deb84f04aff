/*
 * trace.c - rings of fixed records that any thread writes and any thread reads.
 *
 * There are two rings: slow, incomplete and failed events have one of their own, so that thousands
 * of usual events a second do not push them out. An event takes the next place of its ring, whose
 * first word is twice the event's number, or one less while the place is being written. A writer
 * that finds its place being written, since the ring went round meanwhile, drops its event. A
 * reader copies a place between two reads of that word. All stores are releases and all loads
 * acquires (Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012,
 * section 4).
 *
 * An event costs two atomic operations and eight plain stores, 64 bytes, no system call, and no
 * reading of the clock beyond its caller's own.
 */
#include "core/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/lower.h"
#include "core/names.h"

#define SLOW_NS    100000000
/* the ring of slow and failed events has this part of the other ring's places */
#define KEPT_SHARE 4
#define LINE_MOST  512 /* longest event as JSON, in bytes */

typedef _Atomic uint64_t word;

enum { WORD_STATE, WORD_EVENT, WORDS = 1 + sizeof(struct kvt_trace_event) / 8 };

static_assert(WORDS == 8 && sizeof(struct kvt_trace_event) == 56, "a cache line");

struct ring {
	word *words; /* owned; [size][WORDS] */
	size_t size;
	_Atomic uint64_t begun; /* events */
};

struct kvt_trace {
	struct ring rings[KVT_TRACE_RINGS];
	_Atomic uint32_t gets; /* numbers them */
};

/* --- life ------------------------------------------------------------------------------------- */

enum kvt_status kvt_trace_create(uint32_t events, struct kvt_trace **out)
{
	struct kvt_trace *trace = NULL;

	if (events > 0) {
		trace = calloc(1, sizeof(*trace));
		if (trace == NULL)
			return KVT_ENOMEM;
		for (size_t i = 0; i < KVT_TRACE_RINGS; i++) {
			struct ring *ring = &trace->rings[i];

			ring->size = i == 0 ? events : events / KEPT_SHARE + 1;
			ring->words = calloc(ring->size,
				WORDS * sizeof(*ring->words)); /* untouched until used */
			if (ring->words == NULL) {
				kvt_trace_destroy(trace);
				return KVT_ENOMEM;
			}
		}
	}
	*out = trace;
	return KVT_OK;
}

void kvt_trace_destroy(struct kvt_trace *trace)
{
	if (trace == NULL)
		return;
	for (size_t i = 0; i < KVT_TRACE_RINGS; i++)
		free(trace->rings[i].words);
	free(trace);
}

/* --- writing ---------------------------------------------------------------------------------- */

static bool is_kept(const struct kvt_trace_event *e)
{
	return e->took_ns + e->waited_ns >= SLOW_NS || e->why != KVT_WHY_NONE ||
	       e->status != KVT_OK || e->what == KVT_TRACE_DROPPED || e->what == KVT_TRACE_AWAY;
}

void kvt_trace_note(struct kvt_trace *trace, const struct kvt_trace_event *event)
{
	struct ring *ring = &trace->rings[is_kept(event)];
	uint64_t n = atomic_fetch_add_explicit(&ring->begun, 1, memory_order_relaxed),
		 words[WORDS - 1];
	word *at = &ring->words[n % ring->size * WORDS];
	uint64_t state = atomic_load_explicit(&at[WORD_STATE], memory_order_relaxed);

	if (state % 2 != 0 || !atomic_compare_exchange_strong(&at[WORD_STATE], &state, 2 * n + 1))
		return;
	memcpy(words, event, sizeof(*event));
	for (size_t i = 0; i < WORDS - 1; i++)
		atomic_store_explicit(&at[WORD_EVENT + i], words[i], memory_order_release);
	atomic_store_explicit(&at[WORD_STATE], 2 * n + 2, memory_order_release);
}

uint32_t kvt_trace_number(struct kvt_trace *trace)
{
	return trace != NULL ? atomic_fetch_add_explicit(&trace->gets, 1, memory_order_relaxed) + 1
			     : 0;
}

void kvt_trace_explain(struct kvt *k, struct kvt_trace_event *event)
{
	if (event->had == event->asked)
		event->why = KVT_WHY_NONE;
	if (event->had == event->asked || event->why != KVT_WHY_NONE)
		return;
	event->why = KVT_WHY_NOWHERE;
	for (size_t i = 0; i < k->lower_count; i++) {
		if (kvt_lower_readable(&k->lower[i]))
			continue;
		event->why = KVT_WHY_AWAY;
		event->tier = (uint8_t)k->lower[i].id;
	}
}

void kvt_trace_job(struct kvt *k, const struct kvt_job *job, int64_t now_ns)
{
	const struct kvt_tier_request *request = &job->request;
	struct kvt_trace_event event = {.at_ns = now_ns,
		.took_ns = now_ns - job->begun_ns,
		.bytes = request->bytes,
		.get = job->get,
		.asked = (uint32_t)request->key_count,
		.had = (uint32_t)request->found,
		.what = (uint8_t)(KVT_TRACE_READ + request->verb),
		.tier = (uint8_t)job->lower->id,
		.status = (uint8_t)request->status};
	struct kvt_key key;

	if (k->trace == NULL)
		return;
	if (request->verb == KVT_TIER_READ || request->verb == KVT_TIER_WRITE)
		event.waited_ns = job->begun_ns - job->wanted_ns;
	if (request->key_count > 0) {
		kvt_name_above(k, request->keys, &key);
		event.key = kvt_trace_key(&key);
	}
	kvt_trace_note(k->trace, &event);
}

void kvt_trace_chunk(struct kvt *k, enum kvt_trace_what what, uint32_t tier,
	const struct kvt_key *key, enum kvt_trace_why why)
{
	if (k->trace != NULL)
		kvt_trace_note(k->trace, &(struct kvt_trace_event){.at_ns = kvt_clock(k),
						 .key = key != NULL ? kvt_trace_key(key) : 0,
						 .what = (uint8_t)what,
						 .tier = (uint8_t)tier,
						 .why = (uint8_t)why});
}

/* --- an event as JSON ------------------------------------------------------------------------- */

static const char *const whats[KVT_TRACE_WHATS] = {"get", "lookup", "put", "dropped", "removed",
	"away", "read", "write", "erase", "flush", "probe"};
static const char *const whys[KVT_WHY_COUNT] = {"", "nowhere", "tier_away", "slower_than_computing",
	"late", "canceled", "no_room", "tenant_limit", "not_read"};
static const char *const tiers[KVT_TIER_COUNT] = {
	[KVT_TIER_L1] = "memory", [KVT_TIER_NVME] = "nvme", [KVT_TIER_L2] = "l2"};

/* Appends to the line; `room` is enough for the longest event. */
static void add(char *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char *line, const char *format, ...)
{
	size_t len = strlen(line);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line + len, LINE_MOST - len, format, args);
	va_end(args);
}

/* wall_ns: what the wall clock shows when the monotonic clock shows 0. */
static void write_event(const struct kvt_trace_event *e, int64_t wall_ns, char line[LINE_MOST])
{
	bool asks = e->what == KVT_TRACE_GET || e->what == KVT_TRACE_LOOKUP;
	bool tiered = e->what > KVT_TRACE_PUT || e->why == KVT_WHY_AWAY;
	time_t seconds = (time_t)((wall_ns + e->at_ns) / 1000000000);
	struct tm utc;

	line[0] = '\0';
	gmtime_r(&seconds, &utc);
	(void)strftime(line, LINE_MOST, "{\"ts\":\"%Y-%m-%dT%H:%M:%S", &utc);
	add(line, ".%06dZ\",\"what\":\"%s\"", (int)((wall_ns + e->at_ns) % 1000000000 / 1000),
		whats[e->what]);
	if (e->key != 0)
		add(line, ",\"key\":\"%08" PRIx32 "\"", e->key);
	if (tiered)
		add(line, ",\"tier\":\"%s\"", tiers[e->tier]);
	if (asks || e->what == KVT_TRACE_PROBE)
		add(line, ",\"asked\":%" PRIu32 ",\"had\":%" PRIu32, e->asked, e->had);
	if (e->what == KVT_TRACE_GET)
		add(line, ",\"memory\":%" PRIu32 ",\"nvme\":%" PRIu32 ",\"l2\":%" PRIu32,
			e->had - e->below[0] - e->below[1], e->below[0], e->below[1]);
	else if (e->bytes != 0)
		add(line, ",\"bytes\":%" PRIu64, e->bytes);
	if (e->waited_ns != 0)
		add(line, ",\"waited_ms\":%.3f", (double)e->waited_ns / 1e6);
	if (asks || e->what == KVT_TRACE_PUT || e->what >= KVT_TRACE_READ)
		add(line, ",\"ms\":%.3f,\"status\":\"%s\"", (double)e->took_ns / 1e6,
			kvt_status_text((enum kvt_status)e->status));
	if (asks && e->why != KVT_WHY_NONE)
		add(line, ",\"missing\":\"%08" PRIx32 "\"", e->missing);
	if (e->why != KVT_WHY_NONE)
		add(line, ",\"why\":\"%s\"", whys[e->why]);
	if (e->get != 0)
		add(line, ",\"get\":%" PRIu32, e->get);
	add(line, "}");
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Reads event n. False: it was overwritten, or is not written yet. */
static bool read_event(const struct ring *ring, uint64_t n, struct kvt_trace_event *out)
{
	const word *at = &ring->words[n % ring->size * WORDS];
	uint64_t words[WORDS - 1];

	if (atomic_load_explicit(&at[WORD_STATE], memory_order_acquire) != 2 * n + 2)
		return false;
	for (size_t i = 0; i < WORDS - 1; i++)
		words[i] = atomic_load_explicit(&at[WORD_EVENT + i], memory_order_acquire);
	if (atomic_load_explicit(&at[WORD_STATE], memory_order_acquire) != 2 * n + 2)
		return false;
	memcpy(out, words, sizeof(*out));
	return true;
}

/* Writes events of a ring from *since on, each followed by `end`, as long as there is room; sets
 * *since to the next one. Returns the length. */
static size_t write_ring(
	struct kvt *k, const struct ring *ring, uint64_t *since, char end, char *out, size_t room)
{
	int64_t wall_ns = kvt_wall(&k->surroundings) - kvt_clock(k);
	uint64_t stop = atomic_load(&ring->begun);
	struct kvt_trace_event event;
	char line[LINE_MOST];
	size_t at = 0;

	if (stop > ring->size && *since < stop - ring->size)
		*since = stop - ring->size;
	for (; *since < stop && at + LINE_MOST < room; ++*since) {
		if (!read_event(ring, *since, &event))
			continue;
		write_event(&event, wall_ns, line);
		at += (size_t)snprintf(out + at, room - at, "%s%c", line, end);
	}
	return at;
}

bool kvt_trace_answer(struct kvt *k, const char *request, char *out, size_t room)
{
	unsigned number;
	uint64_t since;
	size_t at, head;
	char rest;

	if (sscanf(request, "trace 1 %1u %20" SCNu64 "%c", &number, &since, &rest) != 2 ||
		number >= KVT_TRACE_RINGS)
		return false;
	if (k->trace == NULL) {
		(void)snprintf(out, room, "{\"off\":true}");
		return true;
	}
	head = at = (size_t)snprintf(out, room, "{\"events\":[");
	at += write_ring(k, &k->trace->rings[number], &since, ',', out + at, room - at);
	(void)snprintf(out + at - (at > head), room - at, "],\"next\":%" PRIu64 "}", since);
	return true;
}

enum kvt_status kvt_trace(struct kvt *k, size_t most, char **text)
{
	enum kvt_status status = kvt_usable(k);
	size_t room, at = 0;
	char *made;

	if (status != KVT_OK || text == NULL || k->trace == NULL)
		return status != KVT_OK ? status : text == NULL ? KVT_EINVAL : KVT_ENOTSUP;
	most = most < k->trace->rings[0].size ? most : k->trace->rings[0].size;
	room = KVT_TRACE_RINGS * (most + 1) * LINE_MOST;
	made = malloc(room);
	if (made == NULL)
		return KVT_ENOMEM;
	made[0] = '\0';
	for (size_t i = 0; i < KVT_TRACE_RINGS; i++) {
		uint64_t begun = atomic_load(&k->trace->rings[i].begun);
		uint64_t since = begun > most ? begun - most : 0;

		at += write_ring(k, &k->trace->rings[i], &since, '\n', made + at, room - at);
	}
	*text = made;
	return KVT_OK;
}
