/*
 * workload.h - what `kvbench engine` asks for, and when: the contract between its workloads and the
 * engine that sends (engine.h).
 *
 * A workload is a schedule. It does no I/O, reads no clock and knows no connection: the caller passes
 * the time when it asks for the next request, and reports the end of each. So a test can walk through
 * a workload without an engine. One file defines one workload; workloads.def lists them.
 *
 * The order of calls: plan's figures hold from create() on; warm(0), warm(1), ... until it returns
 * false, each after the end of the one before, or no warm() at all if the warm-up is skipped; then
 * kvb_workload_next() again and again, with kvb_workload_ended() for every request that it gave, but
 * not for those of the warm-up. Texts, ids and their order are those of `lmcache bench engine` 0.5.6.
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

#define KVB_MAX_REQUESTS 10000000 /* of one run: each leaves some figures in memory */
#define KVB_NEVER        INT64_MAX

/* One request as a workload wants it. */
struct kvb_ask {
	char id[64]; /* as it stands in tables of results */
	struct kvb_buf
		messages; /* JSON objects joined by commas; the receiver releases it */
	int64_t max_tokens;
	uint64_t session; /* which conversation, counted from 1; 0: none */
	uint64_t tag;     /* the workload's own, given back to ended() */
	int64_t due_ns;   /* when it should go out, since the start */
};

/* What next() has to say. */
enum kvb_turn {
	KVB_ASK,  /* a request: *out is filled */
	KVB_WAIT, /* none before *wake_ns or before a request has ended, whichever is first */
	KVB_DONE, /* there will be no more */
};

/* Base of every workload: an implementation embeds it as its first member. */
struct kvb_workload {
	const struct kvb_workload_ops *ops;
	uint64_t planned;          /* measured requests, at most */
	uint64_t warm_count;       /* requests of the warm-up */
	uint64_t at_once;          /* most requests under way */
	int64_t settle_ns;         /* pause between warm-up and measurement */
	uint64_t asked, under_way; /* measured requests so far, and those that have not ended */
};

struct kvb_workload_ops {
	const char *name;
	bool needs_volume; /* its size follows from --kv-cache-volume or --psf-thrash and tokens/GB */
	/* Caller owns *out. KVW_EINVAL: what does not fit together is said on error. */
	enum kvw_err (*create)(const struct kvb_engine_options *options, struct kvb_workload **out,
		FILE *error) KVW_MUST_CHECK;
	/* Lines "  name: value" for people. */
	void (*describe)(const struct kvb_workload *workload, FILE *out);
	/* The n-th request of the warm-up, n < warm_count. */
	void (*warm)(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out);
	/* Number `asked` of the measured requests, while fewer than `at_once` are under way. now_ns:
	 * since the start. *wake_ns is KVB_NEVER before; where it says KVB_WAIT it may set it. */
	enum kvb_turn (*next)(struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out,
		int64_t *wake_ns);
	/* A request of next() has ended, well or not; text is its answer's. NULL: that is all the same. */
	void (*ended)(
		struct kvb_workload *workload, uint64_t tag, bool ok, const char *text, size_t len);
	void (*destroy)(struct kvb_workload *workload); /* NULL is allowed */
};

#define KVB_WORKLOAD(name) extern const struct kvb_workload_ops name;
#include "bench/load/workloads.def"
#undef KVB_WORKLOAD

/* The workload of that name; NULL: there is none. */
const struct kvb_workload_ops *kvb_workload_find(const char *name);
/* Their names, joined by ", ". */
void kvb_workload_names(FILE *out);

/* What to do at now_ns, since the start: a request (*out is filled), wait, or nothing any more. */
enum kvb_turn kvb_workload_next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns);
/* A request of kvb_workload_next has ended, well or not; text is its answer's. */
void kvb_workload_ended(
	struct kvb_workload *workload, uint64_t tag, bool ok, const char *text, size_t len);

/* Adds a message with the text (any bytes) to messages. */
void kvb_ask_message(struct kvb_ask *ask, const char *role, const char *text, size_t len);
/* Adds `count` times the word, with blanks between them. */
void kvb_fill(struct kvb_buf *out, const char *word, int64_t count);
/* volume_gb * tokens_per_gb / tokens, rounded down and at least 1, as Python computes it. */
uint64_t kvb_fits(double volume_gb, int64_t tokens_per_gb, int64_t tokens);
/*
 * Words for texts of exact length: of --tokenizer, or of the model where that is a folder with a
 * tokenizer.json, else the built-in ones (from_model is false). KVW_EIO, KVW_EPROTO: said on error.
 */
enum kvw_err kvb_workload_words(const struct kvb_engine_options *options, struct kvb_word_pool *out,
	FILE *error) KVW_MUST_CHECK;
/* KVW_EINVAL where a run would have more requests than KVB_MAX_REQUESTS: said on error. */
enum kvw_err kvb_check_count(const char *name, double requests, FILE *error) KVW_MUST_CHECK;

#endif
