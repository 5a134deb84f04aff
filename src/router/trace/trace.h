/*
 * trace.h - records the steps of each request while it is processed.
 *
 * One record has one request: a fixed 1.6 KB with a head (its start, id, model, status and end),
 * up to KVW_TRACE_NOTES notes of 16 bytes, and their texts. Each event loop has its own ring of
 * records. A request takes the record whose request ended longest ago and keeps it until its own
 * end; the last failed requests keep theirs longer (`kept`). So a running request, however slow,
 * and a failed one can always be read whole. A request without a free record (more run than there
 * are records) is not traced.
 *
 * A note has a time, a kind, a code (a state, timer, reason ...), two numbers, and perhaps a text.
 * The text is never a prompt, a key or a token: texts are ids and models of requests, causes of
 * workers' failures, and messages of kvway's own errors. Tables given at creation name the codes,
 * so that this code does not depend on the proxy's states.
 *
 * If tracing is off, there is no ring, and each function costs one branch, because its `way` is
 * NULL.
 *
 * With options.sampling a request has a place in a distributed trace, too (context.h), and records
 * of chosen requests wait after their end until kvw_trace_take() has read them (join.c).
 *
 * Threads: a ring and its ways belong to one loop, which alone writes. kvw_trace_read works in any
 * thread, without a lock, and detects a record that is rewritten meanwhile (trace.c).
 */
#ifndef KVW_TRACE_H
#define KVW_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/record.h"
#include "kvway/err.h"
#include "kvway/slice.h"
#include "trace/context.h"

/* most notes of one request; those for which there is no room are counted in `skipped` */
#define KVW_TRACE_NOTES      64
#define KVW_TRACE_TEXT       448 /* most bytes of all texts of a request */
#define KVW_TRACE_ID_MOST    64  /* most bytes of an id that are kept */
#define KVW_TRACE_MODEL_MOST 80  /* and of a model's name */
#define KVW_TRACE_LINE_MOST  96  /* and of method and path, with the blank between */

/* Kinds of notes. In addition to its code a note has a number, a second one (`more`) and a text;
 * those that are not mentioned below are 0 and empty. */
enum kvw_trace_kind {
	KVW_TRACE_REQUEST,     /* a state of the side that receives the request */
	KVW_TRACE_RESPONSE,    /* a state of the side that sends the response */
	KVW_TRACE_STEP,        /* a decision of a step; code: the verdict; text: the step's name */
	KVW_TRACE_WAIT, /* a wait; text: its cause; number: longest time in ms, 0: not known */
	/* a worker is asked; code: enum kvw_reason; number: tokens predicted in its cache; more:
	 * kvw_trace_worker; text: read by kvw_trace_prefix and kvw_trace_knowledge */
	KVW_TRACE_ATTEMPT,
	KVW_TRACE_ATTEMPT_END, /* and no longer */
	KVW_TRACE_FAILED,      /* the worker failed; code: enum kvw_retry; text: the cause */
	/* the grade of the worker's answer; code: enum kvw_grade; text: the cause if it is bad */
	KVW_TRACE_GRADE,
	KVW_TRACE_FIRST_TOKEN,
	KVW_TRACE_TIMER,  /* a timeout has passed; code: enum kvw_timer_kind */
	KVW_TRACE_CLIENT, /* an event of the client; code: enum kvw_trace_client */
	KVW_TRACE_ANSWER, /* kvway itself answers; number: the status; text: the message */
	KVW_TRACE_LEG,      /* another worker begins to prefill; number, more: as for an attempt */
	/* prefilling has ended; code: enum kvw_pd_leg; number: tokens of the prompt; text: the
	 * reason if it failed */
	KVW_TRACE_PREFILLED,
	KVW_TRACE_DECODE,   /* how the prefilled cache is used; code: enum kvw_pd_decode */
	KVW_TRACE_END,    /* code: enum kvw_end */
	KVW_TRACE_KINDS
};

/* Event of the client. */
enum kvw_trace_client {
	KVW_TRACE_CLIENT_LEFT, /* closed its connection */
	KVW_TRACE_CLIENT_RESET,
	KVW_TRACE_CLIENT_SLOW,     /* it has taken no byte for timeouts.client_write */
	KVW_TRACE_CLIENT_VANISHED, /* its machine no longer answers */
	KVW_TRACE_CLIENTS
};

/* Names of codes; static. */
struct kvw_trace_words {
	const char *const *names; /* count names; NULL: codes of this kind have no names */
	size_t count;
};

/* Which requests have a place in a distributed trace, and which of these are exported. */
struct kvw_trace_sampling {
	bool on;        /* false: no request has one, and the rest does not count */
	bool parent;    /* the client's traceparent says whether its request is sampled */
	uint64_t below; /* else it is if, of its trace id, the 56 bits after the first 64 are less */
	int64_t slow_ns; /* a request that took as long is exported, too; 0: none for that */
	bool failed;     /* so is one that failed, or was refused with 429 */
	uint32_t tail_per_second; /* most requests of these two kinds, for each loop */
};

/* Why an ended request is exported. */
enum kvw_trace_export {
	KVW_TRACE_EXPORT_NOT,
	KVW_TRACE_EXPORT_SAMPLED,
	KVW_TRACE_EXPORT_SLOW,
	KVW_TRACE_EXPORT_FAILED,
};

/* Why an ended request that should have been exported was not. */
enum kvw_trace_drop {
	KVW_TRACE_DROP_FULL,  /* half of the loop's records wait for their export */
	KVW_TRACE_DROP_LIMIT, /* more than tail_per_second */
	KVW_TRACE_DROPS
};

/* Facts known at a request's end. */
struct kvw_trace_outcome {
	bool prompt_known, completion_known, cached_known;
	bool stream; /* the answer was a stream */
	uint32_t prompt, completion, cached; /* tokens, by the answer */
	const char *strategy; /* static; NULL: none chose a worker */
};

struct kvw_trace_options {
	size_t loops;
	size_t requests; /* number of records for each loop; 0: nothing is traced */
	size_t kept;     /* number of further records, for requests that failed */
	struct kvw_trace_sampling sampling;
	struct kvw_trace_words words[KVW_TRACE_KINDS];
};

struct kvw_trace;
struct kvw_trace_ring;
struct kvw_trace_way; /* the trace of one request that is being processed */

/* Creates a trace; *out is NULL if tracing is off. KVW_ENOMEM. */
enum kvw_err kvw_trace_create(
	const struct kvw_trace_options *options, struct kvw_trace **out) KVW_MUST_CHECK;
void kvw_trace_destroy(struct kvw_trace *trace); /* NULL is allowed */
/* Returns the ring of a loop, to which only that loop writes. NULL: tracing is off. */
struct kvw_trace_ring *kvw_trace_ring(struct kvw_trace *trace, size_t loop);

/* --- the loop; with a way of NULL each function does nothing --- */

/* Begins the trace of a request. start_ns: monotonic; times of notes count from it. NULL: the
 * request is not traced. */
struct kvw_trace_way *kvw_trace_begin(
	struct kvw_trace_ring *ring, int64_t start_ns, int64_t wall_ns);
/* Sets id and API, once; a longer id is cut. */
void kvw_trace_name(struct kvw_trace_way *way, struct kvw_slice id, enum kvw_api api);
void kvw_trace_model(struct kvw_trace_way *way,
	struct kvw_slice model); /* the first model that is not empty counts */

/* --- the loop: a request's place in a distributed trace (join.c) --- */

/* Returns whether requests have one. */
bool kvw_trace_joins(const struct kvw_trace_ring *ring);
/* Continues the trace of the client's `traceparent`, or begins one if that is empty or not valid.
 * way NULL: does nothing. */
void kvw_trace_join(struct kvw_trace_way *way, struct kvw_slice traceparent);
/* Borrowed until the request ends. NULL: the request has none. */
const struct kvw_trace_context *kvw_trace_context(const struct kvw_trace_way *way);
/* Writes the `traceparent` for the worker of the present attempt, or of the leg that will be noted
 * next. False: the request has no place in a trace. */
bool kvw_trace_call(
	const struct kvw_trace_way *way, bool leg, char out[KVW_TRACEPARENT_LEN]) KVW_MUST_CHECK;
/* The next two do nothing for a request without a place in a trace. line: method, a blank, and the
 * path without its query; or the method alone. */
void kvw_trace_asks(struct kvw_trace_way *way, struct kvw_slice line);
/* asked: the client's name of the model where workers have another one; else len 0. */
void kvw_trace_answered(struct kvw_trace_way *way, const struct kvw_trace_outcome *outcome,
	struct kvw_slice asked);

/* Called by the inline functions below. */
void kvw_trace_put(struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_kind kind,
	unsigned code, uint64_t number, uint32_t more, struct kvw_slice text);
void kvw_trace_put_attempt(struct kvw_trace_way *way, int64_t now_ns, uint32_t worker,
	const struct kvw_decision *decision, uint64_t prefix, struct kvw_slice knowledge);
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

/* Sets until when the last noted wait may last. */
static inline void kvw_trace_limit(struct kvw_trace_way *way, int64_t now_ns, int64_t until_ns)
{
	if (way != NULL)
		kvw_trace_put_limit(way, now_ns, until_ns);
}

/* until_ns 0: it is not known how long it may last. */
static inline void kvw_trace_wait(
	struct kvw_trace_way *way, int64_t now_ns, const char *what, int64_t until_ns)
{
	kvw_trace_text(way, now_ns, KVW_TRACE_WAIT, 0, 0, what);
	kvw_trace_limit(way, now_ns, until_ns);
}

/* Notes a step's decision. verdict: a code in the options' words for KVW_TRACE_STEP. */
static inline void kvw_trace_step(
	struct kvw_trace_way *way, int64_t now_ns, const char *step, unsigned verdict)
{
	kvw_trace_text(way, now_ns, KVW_TRACE_STEP, verdict, 0, step);
}

/* Returns a number for a worker, used in `more`: its slot, and how many workers the slot has
 * had. */
static inline uint32_t kvw_trace_worker(uint32_t slot, uint32_t use)
{
	return (slot & 0x3ff) | use << 10;
}

/* Returns the slot of such a number. */
static inline uint32_t kvw_trace_worker_slot(uint32_t worker)
{
	return worker & 0x3ff;
}

/* Notes that a worker is asked, and why. prefix: hash of the part of the prompt that the worker is
 * predicted to have; 0: not known. */
static inline void kvw_trace_attempt(struct kvw_trace_way *way, int64_t now_ns, uint32_t slot,
	uint32_t use, const struct kvw_decision *decision, uint64_t prefix)
{
	const struct kvw_knowledge_text *known;

	if (way == NULL)
		return;
	known = kvw_knowledge_text(decision->knowledge);
	kvw_trace_put_attempt(way, now_ns, kvw_trace_worker(slot, use), decision, prefix,
		kvw_slice_of(known == NULL ? NULL : known->name));
}

static inline void kvw_trace_leg(struct kvw_trace_way *way, int64_t now_ns, uint32_t slot,
	uint32_t use, uint64_t predicted)
{
	if (way != NULL)
		kvw_trace_put(way, now_ns, KVW_TRACE_LEG, 0, predicted,
			kvw_trace_worker(slot, use), (struct kvw_slice){NULL, 0});
}

/* Notes the end of an attempt, if one is under way. */
static inline void kvw_trace_attempt_end(struct kvw_trace_way *way, int64_t now_ns)
{
	if (way != NULL)
		kvw_trace_put_attempt_end(way, now_ns);
}

/* Only the first event of the client is noted, because later ones follow from it. */
static inline void kvw_trace_client(
	struct kvw_trace_way *way, int64_t now_ns, enum kvw_trace_client what)
{
	if (way != NULL)
		kvw_trace_put_client(way, now_ns, what);
}

/* Ends the trace of a request; the way is invalid afterwards. */
static inline void kvw_trace_end(
	struct kvw_trace_way *way, int64_t now_ns, enum kvw_end end, int status, enum kvw_api api)
{
	if (way != NULL)
		kvw_trace_put_end(way, now_ns, end, status, api);
}

/* --- any thread --- */

struct kvw_trace_note {
	uint32_t at_us; /* time since the request began; UINT32_MAX: later than 71 minutes */
	uint8_t kind, code;
	uint8_t text_word, text_len; /* place in story.text, in words of 8 bytes; len 0: no text */
	uint32_t number, more;
};

/* A copy of a request's trace. */
struct kvw_trace_story {
	uint64_t ended; /* its number among the ended requests of its loop; 0: it has not ended */
	int64_t wall_ns, start_ns;
	int64_t total_ns; /* if it has ended */
	int status;       /* set if the request has ended, like the next two */
	enum kvw_end end;
	bool failed;
	enum kvw_api api;
	uint32_t skipped; /* notes without room */
	size_t note_count;
	struct kvw_trace_note notes[KVW_TRACE_NOTES];
	uint8_t id_word, id_len, model_word, model_len; /* as texts of notes */
	/* Method and path, and the client's name of the model if workers have another one; only of
	 * a request with a context. */
	uint8_t path_word, path_len, asked_word, asked_len;
	struct kvw_trace_context context; /* span 0: there is none */
	enum kvw_trace_export export;
	struct kvw_trace_outcome outcome;
	char text[KVW_TRACE_TEXT];
};

size_t kvw_trace_loops(const struct kvw_trace *trace);
size_t kvw_trace_records(const struct kvw_trace *trace); /* of each loop */
/* Returns the number of a loop's ended requests that may wait for kvw_trace_take. */
size_t kvw_trace_outbox_room(const struct kvw_trace *trace);
int64_t kvw_trace_born_ns(
	/* wall clock time of the start, which identifies the process */
	const struct kvw_trace *trace);
uint64_t kvw_trace_ended(
	const struct kvw_trace *trace, size_t loop); /* number of traced requests that have ended */
/* Returns the number of a record's request among the ended ones of its loop; 0: it has not
 * ended. */
uint64_t kvw_trace_record_ended(const struct kvw_trace *trace, size_t loop, size_t record);
/* Returns the prefix of a story's attempt; 0: it is not known. */
uint64_t kvw_trace_prefix(const struct kvw_trace_story *story, const struct kvw_trace_note *note);
/* Returns what an attempt's decision knew of caches, as DEGREE/REASON; empty: nothing was noted. */
struct kvw_slice kvw_trace_knowledge(
	const struct kvw_trace_story *story, const struct kvw_trace_note *note);
/* Copies a record. Returns false if it has had no request yet, or is being rewritten. */
bool kvw_trace_read(const struct kvw_trace *trace, size_t loop, size_t record,
	struct kvw_trace_story *out) KVW_MUST_CHECK;

/* Takes the request out of a loop's outbox that has waited longest for its export. False: none
 * waits. One thread at a time. */
bool kvw_trace_take(const struct kvw_trace *trace, size_t loop,
	struct kvw_trace_story *out) KVW_MUST_CHECK;
/* Returns how many requests were not exported for this reason. */
uint64_t kvw_trace_dropped(const struct kvw_trace *trace, enum kvw_trace_drop why);

static inline struct kvw_slice kvw_trace_story_text(
	const struct kvw_trace_story *story, uint8_t word, uint8_t len)
{
	return (struct kvw_slice){story->text + 8 * (size_t)word, len};
}

/* "request", "attempt", ... */
const char *kvw_trace_kind_name(enum kvw_trace_kind kind);
/* Returns the name of a code; NULL: it has none. */
const char *kvw_trace_code_name(
	const struct kvw_trace *trace, enum kvw_trace_kind kind, unsigned code);

#endif
