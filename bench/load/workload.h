/*
 * workload.h - which requests `kvbench engine` sends, and when: the interface between its workloads
 * and the code that sends (engine.h).
 *
 * A workload is a schedule. It does no I/O, reads no clock and uses no connection: the caller
 * passes the time when it asks for the next request, and reports the end of each. So a test can
 * walk through a workload without an engine. One file defines one workload; workloads.def lists
 * them.
 *
 * The order of calls: plan's figures hold from create() on; warm(0), warm(1), ... until it returns
 * false, each after the end of the one before, or no warm() at all if the warm-up is skipped; then
 * kvb_workload_next() again and again, with kvb_workload_ended() for every request that it gave,
 * but not for those of the warm-up. Texts, ids and their order are those of `lmcache bench engine`
 * 0.5.6.
 */
#ifndef KVB_WORKLOAD_H
#define KVB_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/load/engine_options.h"
#include "kvway/err.h"
#include "bench/load/mem.h"
#include "bench/load/word_pool.h"

/* most requests of a run, since each leaves some figures in memory */
#define KVB_MAX_REQUESTS 10000000
#define KVB_NEVER        INT64_MAX

/* A request that a workload wants to be sent. */
struct kvb_ask {
	char id[64]; /* name in tables of results */
	struct kvb_buf
		messages; /* JSON objects separated by commas; the receiver frees the text */
	int64_t max_tokens;
	uint64_t session; /* number of the conversation, from 1; 0: none */
	uint64_t tag;     /* a value of the workload, which is passed back to ended() */
	int64_t due_ns;   /* time since the start at which it should be sent */
};

/* Results of next(). */
enum kvb_turn {
	KVB_ASK,  /* a request: *out is filled */
	/* there is no request before *wake_ns, or before another has ended, whichever is first */
	KVB_WAIT,
	KVB_DONE, /* there will be no more requests */
};

/* A workload; each implementation has this struct as its first member. */
struct kvb_workload {
	const struct kvb_workload_ops *ops;
	uint64_t planned;          /* measured requests, at most */
	uint64_t warm_count;       /* number of requests in the warm-up */
	uint64_t at_once;          /* most requests under way */
	int64_t settle_ns;         /* pause between warm-up and measurement */
	/* number of measured requests so far, and of those that have not ended */
	uint64_t asked, under_way;
};

struct kvb_workload_ops {
	const char *name;
	/* its size depends on --kv-cache-volume or --psf-thrash, and on the tokens per GB */
	bool needs_volume;
	/* The caller owns *out. KVW_EINVAL: options do not fit together; a message was written to
	 * error. */
	enum kvw_err (*create)(const struct kvb_engine_options *options, struct kvb_workload **out,
		FILE *error) KVW_MUST_CHECK;
	/* Prints lines " name: value" for people. */
	void (*describe)(const struct kvb_workload *workload, FILE *out);
	/* Makes request n of the warm-up, n < warm_count. */
	void (*warm)(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out);
	/* Makes measured request number `asked`; called while fewer than `at_once` are under way.
	 * now_ns is since the start. *wake_ns is KVB_NEVER before the call, and may be set with
	 * KVB_WAIT. */
	enum kvb_turn (*next)(struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out,
		int64_t *wake_ns);
	/* Called when a request of next() has ended, well or not; text is its answer. NULL: the
	 * workload does not need it. */
	void (*ended)(
		struct kvb_workload *workload, uint64_t tag, bool ok, const char *text, size_t len);
	void (*destroy)(struct kvb_workload *workload); /* NULL is allowed */
};

#define KVB_WORKLOAD(name) extern const struct kvb_workload_ops name;
#include "bench/load/workloads.def"
#undef KVB_WORKLOAD

/* Returns the workload of that name; NULL: there is none. */
const struct kvb_workload_ops *kvb_workload_find(const char *name);
/* Their names, joined by ", ". */
void kvb_workload_names(FILE *out);

/* Returns whether at now_ns, since the start, there is a request (in *out), a wait, or nothing any
 * more. */
enum kvb_turn kvb_workload_next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns);
/* Reports that a request of kvb_workload_next has ended, well or not; text is its answer. */
void kvb_workload_ended(
	struct kvb_workload *workload, uint64_t tag, bool ok, const char *text, size_t len);

/* Appends a message with the text (any bytes) to messages. */
void kvb_ask_message(struct kvb_ask *ask, const char *role, const char *text, size_t len);
/* Appends the word `count` times, with blanks between. */
void kvb_fill(struct kvb_buf *out, const char *word, int64_t count);
/* Returns volume_gb * tokens_per_gb / tokens, rounded down and at least 1, as Python computes
 * it. */
uint64_t kvb_fits(double volume_gb, int64_t tokens_per_gb, int64_t tokens);
/*
 * Finds words for texts of exact length: those of --tokenizer, or of the model if that is a folder
 * with a tokenizer.json, else the built-in ones (from_model is false). KVW_EIO, KVW_EPROTO: a
 * message was written to error.
 */
enum kvw_err kvb_workload_words(const struct kvb_engine_options *options, struct kvb_word_pool *out,
	FILE *error) KVW_MUST_CHECK;
/* KVW_EINVAL: the run would have more requests than KVB_MAX_REQUESTS; a message was written to
 * error. */
enum kvw_err kvb_check_count(const char *name, double requests, FILE *error) KVW_MUST_CHECK;

#endif
