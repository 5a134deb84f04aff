/*
 * route.h - the contract between the proxy and a routing strategy.
 *
 * A strategy answers one question: which worker serves this request? A strategy reads a snapshot of
 * candidates, does no I/O, has no clock of its own and never blocks on anything but its own short
 * locks. One instance serves every event loop, so each function may run in several threads at once.
 *
 * Order of calls for one request: pick, then at most once first_token, then exactly once done for
 * every successful pick (a retry on another worker is a new pick).
 */
#ifndef KVW_ROUTE_H
#define KVW_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/keep.h"
#include "kvway/load.h"
#include "kvway/route_request.h"

/* Where a predicted hit lies. Loading from a lower tier costs time; DEVICE is free. */
enum kvw_tier { KVW_TIER_DEVICE, KVW_TIER_HOST, KVW_TIER_DISK, KVW_TIER_REMOTE, KVW_TIER_COUNT };

/* A worker's part in prompts that one worker prefills and another decodes. */
enum kvw_role {
	KVW_ROLE_BOTH,    /* serves whole requests, and both parts */
	/* prefills for others; serves whole requests only where allowed, or if no other can */
	KVW_ROLE_PREFILL,
	/* serves whole requests, and decodes prompts that another worker has prefilled */
	KVW_ROLE_DECODE,
};

#define KVW_STRATEGIES_MOST 16 /* limit of strategies in routing/strategies.def */
#define KVW_OWN_REASONS      8 /* limit of reasons that one strategy adds */
#define KVW_OWN_KEYS_MOST   64 /* limit of settings that all strategies together add */

/* Why a worker was chosen: a label of metrics, access log and `kvway explain`. */
enum kvw_reason {
	KVW_REASON_TURN,       /* roundrobin: it was its turn */
	KVW_REASON_PREFIX,     /* lowest cost, and it holds a prefix */
	KVW_REASON_LOAD,       /* lowest cost, not because of a prefix */
	KVW_REASON_NO_CONTENT, /* the prompt was not understood, so that the choice went by load */
	KVW_REASON_ONLY,       /* one usable worker */
	KVW_REASON_OWNER,      /* the worker keeps the object that this request names */
	KVW_REASON_BOUND,      /* a cheaper worker had too many requests in flight */
	/* a cheaper worker is new, has just returned or has a small weight */
	KVW_REASON_SLOW_START,
	KVW_REASON_KVAWARE,    /* lowest cost, and its events report a prefix */
	/* The worker was ejected after bad answers and its pause is over: one request tries it. */
	KVW_REASON_TRIAL,
	KVW_REASON_PINNED,     /* the request names the worker: x-kvway-pin */
	KVW_REASON_SPLIT, /* the worker decodes, which costs least if another worker prefills */
	/* The worker's role is to prefill, but even so the whole request costs least there. */
	KVW_REASON_PREFILLER,
	KVW_REASON_OWN,        /* the first number of strategies' own `reasons` (KVW_OWN_REASON) */
	KVW_REASON_COUNT = KVW_REASON_OWN + KVW_STRATEGIES_MOST * KVW_OWN_REASONS
};

/* A reason in words. */
struct kvw_reason_text {
	const char *name; /* the label, at most 31 characters; NULL ends a strategy's list */
	const char *why;  /* completes the sentence "URL would serve it: " of `kvway explain` */
};

/* How much a decision knew of workers' caches by the workers' own reports. */
enum kvw_knowledge {
	KVW_KNOWS_NOT_ASKED,  /* no strategy that reads reports decided, or there is no prompt */
	KVW_KNOWS_ALL, /* the worker and all that could have served it report all they hold */
	KVW_KNOWS_OTHERS, /* the worker reports all it holds, but some of the others do not */
	/* The worker has two reporters: one reports all, and reports of the other were missed. */
	KVW_KNOWS_PART,
	KVW_KNOWS_MISSED,     /* some of the worker's reports were missed: a gap, a silent rank */
	KVW_KNOWS_NO_TOKENS,  /* the worker reports all, but the prompt's tokens are not known */
	KVW_KNOWS_NO_REPORTS, /* the worker reports nothing */
	KVW_KNOWS_NO_CHOICE,  /* it alone could serve the request, so that reports were not read */
	KVW_KNOWLEDGE_COUNT
};

/* A knowledge in words; static. */
struct kvw_knowledge_text {
	const char *degree; /* exact, degraded or fallback */
	const char *reason; /* the label, at most 31 characters */
	const char *name;   /* both: DEGREE/REASON */
	const char *why;    /* a sentence, with what to do about it */
};

/* One worker as a strategy sees it. */
struct kvw_candidate {
	/* Below KVW_MAX_WORKERS; reused for another worker once this worker has `left`. */
	uint32_t id;
	uint32_t generation;      /* grows when the worker's cache is known to be lost */
	uint64_t key;             /* hash of its URL: equal in every replica of kvway */
	struct kvw_load *load;    /* live load; read it with kvw_load_*() */
	uint64_t capacity_tokens; /* KV capacity, usable tokens; 0: unknown */
	uint32_t block_size;      /* tokens per engine block; 0: unknown, assume 16 */
	/* Share of an even part of the load that the worker may have; below 1 because of slow start
	 * or weight. */
	float share;
	/* Id of the first data-parallel rank of the worker's server; the worker's own id if it is
	 * the first rank, or no rank. */
	uint32_t server;
	bool usable;  /* healthy, not draining, serves the model, and may have the whole request */
	/* may prefill the prompt for another worker; set where workers have different roles */
	bool prefills;
	uint8_t role;  /* enum kvw_role */
	bool blends; /* reuses fragments (texts at any position), by its metrics or configuration */
};

/* Candidates for one request. Borrowed: valid only during pick(). */
struct kvw_candidates {
	const struct kvw_candidate *items; /* ascending by id */
	size_t count;
	/* has the loads of all items; NULL: they are on no common board */
	const struct kvw_load_board *board;
	uint64_t version; /* sets of the same version have the same items; 0: unknown */
};

/* The decision of pick(). Plain data; the exchange keeps it until done(). */
struct kvw_decision {
	size_t pos; /* index into candidates.items */
	enum kvw_reason reason;
	uint32_t prompt_tokens;              /* predicted length of the prompt; 0: unknown */
	uint32_t hit_tokens[KVW_TIER_COUNT]; /* predicted hit, tokens by tier */
	int64_t prefill_ns;                  /* p_w of the chosen worker, which its lease books */
	/* Nanoseconds until the chosen worker can begin, as in struct kvw_cost. */
	int64_t queue_ns;
	uint32_t inflight;                   /* n_w of the chosen worker before this request */
	uint32_t chains;    /* number of prompts that were looked up to predict the hit; 0: none */
	uint32_t worker_id; /* items[pos].id */
	/* kvaware: tokens behind that hit that are predicted to be reused as fragments */
	uint32_t fragment_tokens;
	bool exact; /* hit_tokens come from the prompt's exact tokens and the worker's events */
	enum kvw_knowledge knowledge;
};

/* Returns how many tokens of the prompt the worker is predicted to have, over all tiers. */
static inline uint64_t kvw_decision_cached(const struct kvw_decision *decision)
{
	uint64_t tokens = decision->fragment_tokens;

	for (size_t tier = 0; tier < KVW_TIER_COUNT; tier++)
		tokens += decision->hit_tokens[tier];
	return tokens;
}

/* Why a candidate was not chosen. */
enum kvw_verdict {
	KVW_VERDICT_CHOSEN,
	KVW_VERDICT_COSTS_MORE,
	KVW_VERDICT_TIE,          /* as cheap as the chosen worker; a hash broke the tie */
	KVW_VERDICT_BOUND,        /* cheap enough, but at its bound of requests in flight */
	KVW_VERDICT_SLOW_START,   /* cheap enough, but new, just returned or of a small weight */
	KVW_VERDICT_UNUSABLE,     /* down, or draining */
	KVW_VERDICT_NOT_ITS_TURN, /* the strategy does not compare costs */
	KVW_VERDICT_COUNT
};

/* Cost of one candidate, filled by explain(). Times in nanoseconds. */
struct kvw_cost {
	/* predicted cached tokens by tier, as vLLM would count them */
	uint32_t hit_tokens[KVW_TIER_COUNT];
	/* Time until the worker can begin the prompt: Q_w, or K_w if that is longer. */
	double queue_ns;
	double room_ns;                      /* K_w: time until KV memory for the prompt is free */
	double prefill_ns; /* p_w, including the time of loading from lower tiers */
	double others_ns; /* omega * p_w * n_w, or the corrected value for ranks in lockstep */
	double context_ns; /* cost of reading the contexts of the worker's requests in flight */
	double evict_ns; /* kvaware: cost of recomputing the blocks that the prompt would evict */
	double total_ns; /* the sum that is compared; 0: the strategy compares none */
	uint32_t inflight;                   /* n_w */
	uint32_t fragment_tokens;            /* as in struct kvw_decision */
	enum kvw_verdict verdict;
	bool exact; /* as in struct kvw_decision */
	enum kvw_knowledge knowledge; /* of this worker alone */
};

/* How a strategy's own setting is written, and which member of kvw_setting_value it fills. */
enum kvw_setting_kind {
	KVW_SETTING_BOOL,     /* flag */
	KVW_SETTING_INT,      /* integer */
	KVW_SETTING_SIZE,     /* size; value in bytes, written as 64MiB */
	KVW_SETTING_DURATION, /* integer; value in milliseconds, written as 250ms or 1h */
	KVW_SETTING_RATIO,    /* ratio */
};

/* A setting that only one strategy reads, by the key routing.<strategy>.<name>. */
struct kvw_own_setting {
	const char *name; /* NULL ends a strategy's list */
	enum kvw_setting_kind kind;
	const char *def, *min, *max; /* as written in YAML; min and max: "" if there is none */
	bool reload;                 /* reconfigure() applies it */
	const char *text;            /* description for REFERENCE.md */
};

union kvw_setting_value {
	bool flag;
	int64_t integer;
	uint64_t size;
	double ratio;
};

struct kvw_strategy;

/* Settings of strategies, from the configuration. Copied by create() and reconfigure(). */
struct kvw_strategy_options {
	/* Only for create(): the running strategy that the new one replaces, or NULL. From then on
	 * old and new strategy share the parts that both kinds have (prefixaware and kvaware: the
	 * prefix tree and the learned rates), in whatever order they are destroyed; no other part
	 * is taken over. Decisions of the old strategy end through its own done(). Borrowed during
	 * the call. */
	const struct kvw_strategy *heir_of;

	/* The strategy's own settings, in the order of its `settings`; borrowed during the call. */
	const union kvw_setting_value *own;

	/* The following members are read by several strategies. */
	double omega; /* weight of the delay that a prefill imposes on other requests, 0.07 */
	bool lockstep;               /* ranks of one server compute their steps together */
	double context_ns_per_token; /* delay per token of the contexts in flight, 3000 */
	double prefill_tokens_per_second; /* prior for a worker's prefill rate */
	double attention_ns_per_pair;     /* quadratic term of prefill, ns per token pair */
	uint64_t tree_bytes;              /* limit of the prefix tree's memory */
	uint64_t capacity_tokens;         /* KV capacity of a worker that does not report its own */
	uint64_t seed; /* seed of hashes that clients must not be able to guess; tests fix it */

	/* A worker with more than bound * mean + gap requests in flight is passed over; mean: over
	 * the usable candidates. bound 0: no worker is. */
	double inflight_bound;
	double inflight_gap;

	/* kvaware */
	/* limit of the exact index's memory; parked events may have a 16th of it */
	uint64_t index_bytes;
	/* time to fetch a cached token from each tier; DEVICE: 0 */
	double load_ns_per_token[KVW_TIER_COUNT];
	/* weight of recomputing blocks that a prompt evicts from a full cache, 4 */
	double eviction_weight;

	/* kvaware: counts texts that are no prefix, for workers that reuse them */
	bool fragments;               /* create() alone */
	uint64_t fragment_bytes;      /* limit of the table's memory; only read by create() */
	uint64_t fragment_held;       /* tokens of texts that a worker is assumed to hold */
	uint32_t fragment_min_tokens; /* shorter texts do not count */
	double fragment_ns_per_token; /* time to load and rotate a token */
	double fragment_share;        /* share of these tokens that is computed again, 0 to 1 */
};

/* Gauges that a strategy can report; those that it does not have stay 0. */
struct kvw_strategy_stats {
	uint64_t nodes, chunks, bytes, bytes_limit; /* prefix tree */
	uint64_t evicted_chunks, purges;            /* counted since the start */
	uint64_t sessions;
	uint64_t exact_blocks, exact_holders, exact_bytes, exact_bytes_limit; /* kvaware's index */
	uint64_t fragment_entries, fragment_entries_limit, fragment_bytes; /* kvaware's texts */
	uint64_t exact_parked, exact_dropped, exact_parked_dropped, exact_unknown_removes;
};

/* Numbers that a strategy has learned about one worker. */
struct kvw_worker_learned {
	double prefill_tokens_per_second;  /* the rate used to compute costs */
	/* learned from the worker's times to first token; 0: too few samples */
	double observed_tokens_per_second;
	uint32_t rate_samples;             /* such samples in the window */
	/* share of the worker's capacity that predictions assume, 0.25 to 1 */
	double capacity_share;
};

/* How much of a request a strategy needs; each level includes the ones before it. */
enum kvw_prepare {
	KVW_PREPARE_FIELDS,  /* the body's model, session, stream */
	KVW_PREPARE_CONTENT, /* ... and the prompt, hashed chunk by chunk */
	/* ... and the exact tokens, if a worker answers in time; requires `exact` */
	KVW_PREPARE_TOKENS,
};

struct kvw_strategy_ops;

/* Base of every instance: an implementation embeds it as its first member. */
struct kvw_strategy {
	const struct kvw_strategy_ops *ops; /* static, never NULL */
};

/* One routing algorithm; each file in routing/ that has one defines one of these. */
struct kvw_strategy_ops {
	const char *name;   /* as written in the key routing.strategy */
	const char *help;   /* one line for --help and REFERENCE.md */
	const struct kvw_own_setting *settings; /* the strategy's own settings; NULL: none */
	/* its own reasons, at most KVW_OWN_REASONS; NULL: none */
	const struct kvw_reason_text *reasons;
	enum kvw_prepare prepare; /* how much of a request pick() needs */

	/* Creates an instance, which the caller owns. Fails only with KVW_ENOMEM, leaving *out
	 * unchanged. */
	enum kvw_err (*create)(const struct kvw_strategy_options *options,
		struct kvw_strategy **out) KVW_MUST_CHECK;

	/* Chooses a worker and fills *out. KVW_ENOWORKER: no candidate is usable, and *out is
	 * unchanged. */
	enum kvw_err (*pick)(struct kvw_strategy *self, const struct kvw_route_request *request,
		const struct kvw_candidates *set, int64_t now_ns,
		struct kvw_decision *out) KVW_MUST_CHECK;

	/* Computes what pick would decide now and why, without effect on later picks. costs:
	 * [set->count], all are filled. *out and errors are those of pick. */
	enum kvw_err (*explain)(struct kvw_strategy *self, const struct kvw_route_request *request,
		const struct kvw_candidates *set, int64_t now_ns, struct kvw_cost *costs,
		struct kvw_decision *out) KVW_MUST_CHECK;

	/* Optional. Applies all options except sizes (tree_bytes, index_bytes, own settings without
	 * `reload`) and the seed, and keeps everything that was learned. Any thread, one at a time,
	 * while others pick: a pick that has begun may still see some of the old values. */
	void (*reconfigure)(
		struct kvw_strategy *self, const struct kvw_strategy_options *options);

	/* Optional. Called when the worker's first token has arrived; the lease is still held. */
	void (*first_token)(struct kvw_strategy *self, const struct kvw_decision *decision,
		const struct kvw_lease *lease, int64_t now_ns);

	/* Optional. Called exactly once for every successful pick. */
	void (*done)(struct kvw_strategy *self, const struct kvw_decision *decision,
		const struct kvw_outcome *outcome, int64_t now_ns);

	/* Optional. Called when the worker's cache is lost: forgets the worker's blocks, in
	 * O(1). */
	void (*purge)(struct kvw_strategy *self, uint32_t worker_id);

	/* Optional; without it purge is called. Called when the worker has left and no request
	 * refers to it: forgets everything about it, since another worker may get its id. */
	void (*left)(struct kvw_strategy *self, uint32_t worker_id);

	/* Optional. */
	void (*stats)(struct kvw_strategy *self, struct kvw_strategy_stats *out);

	/* Optional. Fills *out. */
	void (*learned)(
		struct kvw_strategy *self, uint32_t worker_id, struct kvw_worker_learned *out);

	/* Optional. Writes the state that should outlive the process (keep.h), while other threads
	 * pick. Returns the error of out->put. */
	enum kvw_err (*keep)(
		struct kvw_strategy *self, const struct kvw_keep_out *out) KVW_MUST_CHECK;

	/* Optional. Reads the records that a strategy of any kind wrote, and uses those that it
	 * can. Called before the first pick. */
	void (*recall)(struct kvw_strategy *self, const struct kvw_keep_in *in);
	/* Optional. Called before recall(), and before any other thread uses the strategy: then
	 * recall() may run while others pick. The recalled state takes effect at the end of
	 * recall(); what picks and answers taught until then may be lost. KVW_ENOMEM: recall() must
	 * not run while others pick. */
	enum kvw_err (*recall_aside)(struct kvw_strategy *self) KVW_MUST_CHECK;

	/* Optional. Returns the view that feeds fill; the strategy owns it. */
	struct kvw_exact *(*exact)(struct kvw_strategy *self);

	void (*destroy)(struct kvw_strategy *self); /* NULL is allowed */
};

/* NULL-terminated list of built-in strategies, from routing/strategies.def. */
extern const struct kvw_strategy_ops *const kvw_strategies[];

/* Finds a strategy by name; NULL: none has it. */
const struct kvw_strategy_ops *kvw_strategy_find(const char *name);

/* Returns the label of a reason, for example "prefix"; "unknown" if there is no such reason. */
const char *kvw_reason_name(enum kvw_reason reason);

/* Returns the reason as half a sentence, for example "it is its turn". */
const char *kvw_reason_why(enum kvw_reason reason);

/* Returns whether decisions of this strategy may have this reason: it is a shared reason, or one of
 * the strategy's own. */
bool kvw_reason_of(const struct kvw_strategy_ops *ops, enum kvw_reason reason);

/* Returns a knowledge in words; NULL for KVW_KNOWS_NOT_ASKED. */
const struct kvw_knowledge_text *kvw_knowledge_text(enum kvw_knowledge knowledge);

/* Returns the text of a verdict, for example "costs_more". */
const char *kvw_verdict_name(enum kvw_verdict verdict);

#endif
