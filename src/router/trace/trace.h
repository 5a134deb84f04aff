/*
 * trace.h - the way of each request, written down while it is gone.
 *
 * One record holds one request's way: a fixed 1.5 KiB with a head (when it began, its id, model,
 * status and end), up to KVW_TRACE_NOTES notes of 16 bytes, and the texts that belong to them.
 * Each event loop has a ring of records of its own. A request takes the record whose request
 * ended longest ago and keeps it until its own end; the last requests that failed keep theirs
 * longer (`kept`). So a request under way, however slow, and one that failed can always be read
 * whole. One for which no record is free (more requests run than there are records) is not
 * traced.
 *
 * A note is: when, its kind, a code (which state, timer, reason ...), two numbers, perhaps a
 * text. Never a prompt, a key or a token: texts are ids and models of requests, why a worker
 * failed, and messages of kvway's own errors. What codes mean say tables that the trace is
 * created with, so that this room knows no state of the proxy.
 *
 * Off (no ring) each hook costs one branch: its `way` is NULL.
 *
 * Threads: a ring and its ways belong to one loop, which alone writes. kvw_trace_read works in
 * any thread, without a lock, and never takes a record for whole that is written again meanwhile
 * (trace.c).
 */
#ifndef KVW_TRACE_H
#define KVW_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/record.h"
#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_TRACE_NOTES      64  /* of one request; what has no room is counted in `skipped` */
#define KVW_TRACE_TEXT       448 /* bytes of all its texts */
#define KVW_TRACE_ID_MOST    64  /* bytes of an id that are kept */
#define KVW_TRACE_MODEL_MOST 80  /* and of a model's name */

/* What a note says. Besides its code it has a number, another (`more`) and a text; unnamed here: 0
 * and none. */
enum kvw_trace_kind {
	KVW_TRACE_REQUEST,     /* state of the request side */
	KVW_TRACE_RESPONSE,    /* state of the response side */
	KVW_TRACE_STEP,        /* a step has decided; code: its verdict; text: its name */
	KVW_TRACE_WAIT,        /* text: for what; number: ms at most, 0: no limit is known */
	KVW_TRACE_ATTEMPT,     /* a worker is asked; code: enum kvw_reason; number: tokens predicted
	                          in its cache; more: kvw_trace_worker */
	KVW_TRACE_ATTEMPT_END, /* and no longer */
	KVW_TRACE_FAILED,      /* the worker failed; code: enum kvw_retry; text: why */
	KVW_TRACE_GRADE,       /* of the worker; code: enum kvw_grade; text: why, if it is bad */
	KVW_TRACE_FIRST_TOKEN,
	KVW_TRACE_TIMER,  /* a time has passed; code: enum kvw_timer_kind */
	KVW_TRACE_CLIENT, /* code: enum kvw_trace_client */
	KVW_TRACE_ANSWER, /* kvway answers itself; number: status; text: message */
	KVW_TRACE_END,    /* code: enum kvw_end */
	KVW_TRACE_KINDS
};

/* What the client did. */
enum kvw_trace_client {
	KVW_TRACE_CLIENT_LEFT, /* closed its connection */
	KVW_TRACE_CLIENT_RESET,
	KVW_TRACE_CLIENT_SLOW,     /* took nothing for timeouts.client_write */
	KVW_TRACE_CLIENT_VANISHED, /* its host does not answer */
	KVW_TRACE_CLIENTS
};

/* Names of codes; static. */
struct kvw_trace_words {
	const char *const *names; /* [count]; NULL: codes of this kind have none */
	size_t count;
};

struct kvw_trace_options {
	size_t loops;
	size_t requests; /* records of each loop; 0: nothing is traced */
	size_t kept;     /* more, for requests that failed */
	struct kvw_trace_words words[KVW_TRACE_KINDS];
};

struct kvw_trace;
struct kvw_trace_ring;
struct kvw_trace_way; /* of one request, while it is under way */

/* *out is NULL where nothing is to be traced. KVW_ENOMEM. */
enum kvw_err kvw_trace_create(
	const struct kvw_trace_options *options, struct kvw_trace **out) KVW_MUST_CHECK;
void kvw_trace_destroy(struct kvw_trace *trace); /* NULL is allowed */
/* Of a loop, which alone writes to it. NULL: nothing is traced. */
struct kvw_trace_ring *kvw_trace_ring(struct kvw_trace *trace, size_t loop);

/* --- the loop; each takes a way of NULL, and does nothing then --- */

/* A request begins. start_ns: monotonic, what the times of its notes are relative to. NULL: it
 * is not traced. */
struct kvw_trace_way *kvw_trace_begin(
	struct kvw_trace_ring *ring, int64_t start_ns, int64_t wall_ns);
/* Once; longer ones are cut. */
void kvw_trace_name(struct kvw_trace_way *way, struct kvw_slice id, enum kvw_api api);
void kvw_trace_model(struct kvw_trace_way *way,
	struct kvw_slice model); /* the first one that is not empty counts */

/* What the inline functions below call. */
void kvw_trace_put(struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_kind kind,
	unsigned code, uint64_t number, uint32_t more, struct kvw_slice text);
void kvw_trace_put_client(struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_client what);
void kvw_trace_put_limit(struct kvw_trace_way *way, int64_t now_ns, int64_t until_ns);
void kvw_trace_put_end(
	struct kvw_trace_way *way, int64_t now_ns, enum kvw_end end, int status, enum kvw_api api);
void kvw_trace_put_attempt_end(struct kvw_trace_way *way, int64_t now_ns);

static inline void kvw_trace_note(
	struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_kind kind, unsigned code)
{
	if (way != NULL)
		kvw_trace_put(way, now_ns, kind, code, 0, 0, (struct kvw_slice){NULL, 0});
}

static inline void kvw_trace_text(struct kvw_trace_way *way, int64_t now_ns,
	enum kvw_trace_kind kind, unsigned code, uint64_t number, const char *text)
{
	if (way != NULL)
		kvw_trace_put(way, now_ns, kind, code, number, 0, kvw_slice_of(text));
}

/* The wait that was noted last has an end: the request waits until then at most. */
static inline void kvw_trace_limit(struct kvw_trace_way *way, int64_t now_ns, int64_t until_ns)
{
	if (way != NULL)
		kvw_trace_put_limit(way, now_ns, until_ns);
}

/* until_ns: 0 where no limit is known. */
static inline void kvw_trace_wait(
	struct kvw_trace_way *way, int64_t now_ns, const char *what, int64_t until_ns)
{
	kvw_trace_text(way, now_ns, KVW_TRACE_WAIT, 0, 0, what);
	kvw_trace_limit(way, now_ns, until_ns);
}

/* A step has decided. verdict: as the options' words for KVW_TRACE_STEP name them. */
static inline void kvw_trace_step(
	struct kvw_trace_way *way, int64_t now_ns, const char *step, unsigned verdict)
{
	kvw_trace_text(way, now_ns, KVW_TRACE_STEP, verdict, 0, step);
}

/* A worker in `more`: its slot, and how many workers that slot has had. */
static inline uint32_t kvw_trace_worker(uint32_t slot, uint32_t use)
{
	return (slot & 0x3ff) | use << 10;
}

static inline void kvw_trace_attempt(struct kvw_trace_way *way, int64_t now_ns, uint32_t slot,
	uint32_t use, unsigned reason, uint64_t predicted)
{
	if (way != NULL)
		kvw_trace_put(way, now_ns, KVW_TRACE_ATTEMPT, reason, predicted,
			kvw_trace_worker(slot, use), (struct kvw_slice){NULL, 0});
}

/* If one is under way. */
static inline void kvw_trace_attempt_end(struct kvw_trace_way *way, int64_t now_ns)
{
	if (way != NULL)
		kvw_trace_put_attempt_end(way, now_ns);
}

/* The first cause counts: what follows from it is not the client's doing. */
static inline void kvw_trace_client(
	struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_client what)
{
	if (way != NULL)
		kvw_trace_put_client(way, now_ns, what);
}

/* The request has ended; the way is not used afterwards. */
static inline void kvw_trace_end(
	struct kvw_trace_way *way, int64_t now_ns, enum kvw_end end, int status, enum kvw_api api)
{
	if (way != NULL)
		kvw_trace_put_end(way, now_ns, end, status, api);
}

/* --- any thread --- */

struct kvw_trace_note {
	uint32_t at_us; /* since the request began; UINT32_MAX: later than 71 minutes */
	uint8_t kind, code;
	uint8_t text_word, text_len; /* in story.text, words of 8 bytes; len 0: none */
	uint32_t number, more;
};

/* A request's way as it was when it was read. */
struct kvw_trace_story {
	uint64_t ended; /* it was the n-th of its loop to end; 0: it is under way */
	int64_t wall_ns, start_ns;
	int64_t total_ns; /* if it has ended */
	int status;       /* likewise, and the next two */
	enum kvw_end end;
	bool failed;
	enum kvw_api api;
	uint32_t skipped; /* notes without room */
	size_t note_count;
	struct kvw_trace_note notes[KVW_TRACE_NOTES];
	uint8_t id_word, id_len, model_word, model_len; /* as texts of notes */
	char text[KVW_TRACE_TEXT];
};

size_t kvw_trace_loops(const struct kvw_trace *trace);
size_t kvw_trace_records(const struct kvw_trace *trace); /* of each loop */
int64_t kvw_trace_born_ns(
	const struct kvw_trace *trace); /* wall clock: of another process another one */
uint64_t kvw_trace_ended(
	const struct kvw_trace *trace, size_t loop); /* requests that were traced and have ended */
/* False: the record has had no request yet, or is being written for another one. */
bool kvw_trace_read(const struct kvw_trace *trace, size_t loop, size_t record,
	struct kvw_trace_story *out) KVW_MUST_CHECK;

static inline struct kvw_slice kvw_trace_story_text(
	const struct kvw_trace_story *story, uint8_t word, uint8_t len)
{
	return (struct kvw_slice){story->text + 8 * (size_t)word, len};
}

/* "request", "attempt", ... */
const char *kvw_trace_kind_name(enum kvw_trace_kind kind);
/* Name of a code. NULL: it has none. */
const char *kvw_trace_code_name(
	const struct kvw_trace *trace, enum kvw_trace_kind kind, unsigned code);

#endif
