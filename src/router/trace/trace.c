/*
 * trace.c - records that one loop writes and any thread reads.
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
 * the word that counts them. A reader copies the words in use in order between two reads of the
 * version; if it is even and unchanged, the copy is one request's, complete up to its count. All
 * stores are releases and all loads acquires (Boehm, "Can seqlocks get along with programming
 * language memory models?", MSPC 2012, section 4): on x86 these are plain moves, and a fence, which
 * ThreadSanitizer does not know, is not needed.
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
		(leaves_room(kind) && text.len > 0 && kvw_trace_room(way) < TEXT_MOST)) {
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

/* --- reading --- */

size_t kvw_trace_loops(const struct kvw_trace *trace)
{
	return trace->options.loops;
}

size_t kvw_trace_records(const struct kvw_trace *trace)
{
	return trace->records;
}

size_t kvw_trace_outbox_room(const struct kvw_trace *trace)
{
	return trace->rings[0]->outbox.most;
}

int64_t kvw_trace_born_ns(const struct kvw_trace *trace)
{
	return trace->born_ns;
}

uint64_t kvw_trace_ended(const struct kvw_trace *trace, size_t loop)
{
	return atomic_load_explicit(&trace->rings[loop]->ended, memory_order_acquire);
}

static void decode_note(const uint64_t *words, struct kvw_trace_note *out)
{
	*out = (struct kvw_trace_note){
		.at_us = (uint32_t)words[0],
		.kind = (uint8_t)(words[0] >> 32),
		.code = (uint8_t)(words[0] >> 40),
		.text_word = (uint8_t)(words[0] >> 48),
		.text_len = (uint8_t)(words[0] >> 56),
		.number = (uint32_t)words[1],
		.more = (uint32_t)(words[1] >> 32),
	};
}

static void decode_context(const uint64_t *words, struct kvw_trace_story *out)
{
	uint64_t known = words[WORD_EXPORT] >> 16;

	out->path_word = (uint8_t)(words[WORD_NAMES] >> 32);
	out->path_len = (uint8_t)(words[WORD_NAMES] >> 40);
	out->asked_word = (uint8_t)(words[WORD_NAMES] >> 48);
	out->asked_len = (uint8_t)(words[WORD_NAMES] >> 56);
	out->context = (struct kvw_trace_context){
		.trace = {words[WORD_TRACE], words[WORD_TRACE + 1]},
		.parent = words[WORD_PARENT],
		.span = words[WORD_SPAN],
		.flags = (uint8_t)(words[WORD_EXPORT] >> 8),
	};
	out->export = (enum kvw_trace_export)(words[WORD_EXPORT] & 0xff);
	out->outcome = (struct kvw_trace_outcome){
		.prompt_known = (known & 1) != 0,
		.completion_known = (known & 2) != 0,
		.cached_known = (known & 4) != 0,
		.stream = (known & 8) != 0,
		.prompt = (uint32_t)words[WORD_TOKENS],
		.completion = (uint32_t)(words[WORD_TOKENS] >> 32),
		.cached = (uint32_t)words[WORD_CACHED],
		.strategy = known == 0 ? NULL : (const char *)(uintptr_t)words[WORD_STRATEGY],
	};
}

/* Moves a step's decision before what the step did in that moment, since it is noted after it. */
static void order_step(struct kvw_trace_note *notes, size_t at)
{
	const struct kvw_trace_note step = notes[at];

	for (; at > 0 && notes[at - 1].at_us == step.at_us &&
		(notes[at - 1].kind == KVW_TRACE_WAIT || notes[at - 1].kind == KVW_TRACE_ANSWER ||
			notes[at - 1].kind == KVW_TRACE_RESPONSE);
		at--)
		notes[at] = notes[at - 1];
	notes[at] = step;
}

static void decode(const uint64_t *words, struct kvw_trace_story *out)
{
	out->ended = words[WORD_ENDED];
	out->wall_ns = (int64_t)words[WORD_WALL];
	out->start_ns = (int64_t)words[WORD_START];
	out->total_ns = out->ended == 0 ? 0 : (int64_t)words[WORD_TOTAL];
	out->status = (int)(words[WORD_RESULT] & 0xffff);
	out->end = (enum kvw_end)(words[WORD_RESULT] >> 16 & 0xff);
	out->failed = (words[WORD_RESULT] >> 24 & 1) != 0;
	out->api = (enum kvw_api)(words[WORD_RESULT] >> 32);
	out->skipped = (uint32_t)(words[WORD_STATE] >> 16 & 0xffff);
	out->note_count = words[WORD_STATE] & 0xff;
	out->id_word = (uint8_t)words[WORD_NAMES];
	out->id_len = (uint8_t)(words[WORD_NAMES] >> 8);
	out->model_word = (uint8_t)(words[WORD_NAMES] >> 16);
	out->model_len = (uint8_t)(words[WORD_NAMES] >> 24);
	decode_context(words, out);
	for (size_t i = 0; i < out->note_count; i++) {
		decode_note(words + WORD_NOTES + 2 * i, &out->notes[i]);
		if (out->notes[i].kind == KVW_TRACE_STEP)
			order_step(out->notes, i);
	}
	memcpy(out->text, words + WORD_TEXT, KVW_TRACE_TEXT);
}

uint64_t kvw_trace_record_ended(const struct kvw_trace *trace, size_t loop, size_t record)
{
	return load(&trace->rings[loop]->words[record * WORDS + WORD_ENDED]);
}

uint64_t kvw_trace_prefix(const struct kvw_trace_story *story, const struct kvw_trace_note *note)
{
	struct kvw_slice text = kvw_trace_story_text(story, note->text_word, note->text_len);
	uint64_t prefix = 0;

	if (note->kind == KVW_TRACE_ATTEMPT && text.len >= sizeof(prefix))
		memcpy(&prefix, text.data, sizeof(prefix));
	return prefix;
}

struct kvw_slice kvw_trace_knowledge(
	const struct kvw_trace_story *story, const struct kvw_trace_note *note)
{
	struct kvw_slice text = kvw_trace_story_text(story, note->text_word, note->text_len);

	if (note->kind != KVW_TRACE_ATTEMPT || text.len <= sizeof(uint64_t))
		return (struct kvw_slice){NULL, 0};
	return (struct kvw_slice){text.data + sizeof(uint64_t), text.len - sizeof(uint64_t)};
}

static void copy_words(uint64_t *words, const word *from, size_t begin, size_t end)
{
	for (size_t i = begin; i < end; i++)
		words[i] = load(&from[i]);
}

bool kvw_trace_read(
	const struct kvw_trace *trace, size_t loop, size_t record, struct kvw_trace_story *out)
{
	const word *from = trace->rings[loop]->words + record * WORDS;
	uint64_t words[WORDS];

	if (load(&from[WORD_VERSION]) == 0)
		return false;
	copy_words(words, from, 0, WORD_NOTES);
	copy_words(words, from, WORD_NOTES, WORD_NOTES + 2 * (words[WORD_STATE] & 0xff));
	copy_words(words, from, WORD_TEXT, WORDS);
	if (words[WORD_VERSION] == 0 || words[WORD_VERSION] % 2 != 0 ||
		load(&from[WORD_VERSION]) != words[WORD_VERSION])
		return false;
	decode(words, out);
	return true;
}

bool kvw_trace_take(const struct kvw_trace *trace, size_t loop, struct kvw_trace_story *out)
{
	struct kvw_trace_ring *ring = trace->rings[loop];
	struct outbox *outbox = &ring->outbox;
	uint64_t taken = atomic_load_explicit(&outbox->taken, memory_order_relaxed);
	uint32_t index;
	bool read;

	if (taken == atomic_load_explicit(&outbox->put, memory_order_acquire))
		return false;
	index = atomic_load_explicit(&outbox->indices[taken % outbox->most], memory_order_relaxed);
	read = kvw_trace_read(trace, loop, index, out);
	assert(read); /* no thread writes a record of the outbox */
	atomic_store_explicit(&outbox->taken, taken + 1, memory_order_release);
	return read;
}

const char *kvw_trace_kind_name(enum kvw_trace_kind kind)
{
	static const char *const names[KVW_TRACE_KINDS] = {
		[KVW_TRACE_REQUEST] = "request",
		[KVW_TRACE_RESPONSE] = "response",
		[KVW_TRACE_STEP] = "step",
		[KVW_TRACE_WAIT] = "wait",
		[KVW_TRACE_ATTEMPT] = "attempt",
		[KVW_TRACE_ATTEMPT_END] = "attempt_end",
		[KVW_TRACE_FAILED] = "failed",
		[KVW_TRACE_GRADE] = "grade",
		[KVW_TRACE_FIRST_TOKEN] = "first_token",
		[KVW_TRACE_TIMER] = "timer",
		[KVW_TRACE_CLIENT] = "client",
		[KVW_TRACE_ANSWER] = "answer",
		[KVW_TRACE_LEG] = "prefill",
		[KVW_TRACE_PREFILLED] = "prefilled",
		[KVW_TRACE_DECODE] = "decode",
		[KVW_TRACE_END] = "end",
	};

	return kind < KVW_TRACE_KINDS ? names[kind] : "unknown";
}

static const char *name_in(const struct kvw_trace_words *words, unsigned code)
{
	return code < words->count ? words->names[code] : NULL;
}

const char *kvw_trace_code_name(
	const struct kvw_trace *trace, enum kvw_trace_kind kind, unsigned code)
{
	static const char *const clients[KVW_TRACE_CLIENTS] = {"left", "reset", "slow", "vanished"};

	if (kind == KVW_TRACE_CLIENT)
		return code < KVW_TRACE_CLIENTS ? clients[code] : NULL;
	return kind < KVW_TRACE_KINDS ? name_in(&trace->options.words[kind], code) : NULL;
}
