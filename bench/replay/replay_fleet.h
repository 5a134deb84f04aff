/*
 * replay_fleet.h - the simulated workers, and what a router knows of them.
 *
 * Each worker is an engine of bench/sim in simulated time. Besides the engines the fleet keeps a
 * ledger of what any router sees without asking: which requests it sent where, which have had
 * their first token, which have ended. Policies read the ledger instead of each keeping its own.
 *
 * kvb_fleet_hit() is more than most routers have: the engine's cache as it is, at this moment,
 * together with the prompts that were sent there and are not yet computed. It stands for a
 * perfect stream of KV events, and the peers that live on such a stream get it.
 */
#ifndef KVB_REPLAY_FLEET_H
#define KVB_REPLAY_FLEET_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/load.h"
#include "bench/replay/replay_jobs.h"
#include "bench/replay/replay_pd.h"
#include "bench/sim/sim_engine.h"

/* A worker that differs from the others. Zeroed: it does not. */
struct kvb_oddity {
	double slower;          /* every step takes so many times as long; 0 means 1 */
	int64_t stall_begin_ns; /* begins no step from here ... */
	int64_t stall_end_ns;   /* ... to here */
};

/* Caches that are emptied behind the router's back, one worker after the other. What runs there
 * starts over, as with vLLM's reset_running_requests. Zeroed: none is. */
struct kvb_resets {
	int64_t begin_ns; /* of worker 0 */
	int64_t every_ns; /* the next worker's; 0: never */
};

/* Times between tokens are counted in 64 classes to each doubling, up to 2^42 ns. */
#define KVB_GAPS (42 * 64)

struct kvb_routers; /* replay_routers.h */

struct kvb_fleet_options {
	uint32_t workers;
	const struct kvb_profile *profile; /* borrowed */
	uint32_t block_size;               /* tokens; divides KVB_ID_TOKENS */
	uint32_t kv_tokens;                /* KV cache of each worker */
	uint32_t max_batched_tokens;       /* of a step */
	uint32_t max_seqs;                 /* running at once on a worker */
	struct kvb_oddity odd;             /* of worker 0 */
	struct kvb_resets resets;
	struct kvb_pd_options pd;
	uint32_t ranks; /* of a server, which compute their steps together; 1: each is alone */
	const struct kvb_routers *routers; /* of the policy `routers`; NULL: there is one */
};

/* What a router knows of one worker from its own traffic. */
struct kvb_sent {
	uint32_t inflight;       /* requests not ended */
	uint32_t unanswered;     /* of these, without a first token */
	uint64_t prefill_tokens; /* uncached tokens of the unanswered, as predicted when sent */
	struct kvw_load
		load; /* the same in seconds by the profile's own figures, drained by time */
};

/* One request's way through. */
struct kvb_course {
	int64_t due_ns;   /* when it first came; it may come again if it is refused */
	int64_t asked_ns; /* when it came last */
	int64_t sent_ns, first_ns, end_ns; /* to a worker; first_ns 0: no token yet */
	uint32_t refusals;
	uint32_t worker;
	uint32_t prefiller; /* that computes the prompt for it; KVB_ROUTED: itself */
	int64_t prefilled_ns, token_ns; /* the last token; of the prefiller, if there is one */
	uint32_t predicted;              /* tokens that kvb_fleet_hit() gave when it was sent */
	uint32_t cached;                 /* tokens that the engine reused */
	bool came, waiting, sent, ended; /* waiting: at the admission */
	bool refused;                    /* for good */
	bool to_pull;                    /* what was prefilled for it */
	struct kvw_lease lease;
	struct kvb_seq *seq; /* on the prefiller, then on the worker */
	uint32_t before, after; /* list of its worker's unanswered; KVB_NO_JOB: none */
};

struct kvb_fleet_worker {
	struct kvb_engine *engine;
	struct kvb_profile profile; /* its own: one worker may be slower */
	struct kvb_oddity odd;
	struct kvb_sent sent;
	uint32_t unanswered; /* first of the list; KVB_NO_JOB: none */
	bool busy;           /* in a step, or stalled */
	bool stalled;
	int64_t began_ns, until_ns; /* of that */
	uint32_t decoded; /* tokens of the step that were not the first of an answer */
	int64_t reset_ns; /* its cache is emptied then; INT64_MAX: never */
};

struct kvb_fleet {
	struct kvb_fleet_options options;
	const struct kvb_jobs *jobs; /* borrowed */
	struct kvb_fleet_worker *workers;
	struct kvb_course *courses; /* by job */
	uint64_t *hashes;           /* scratch: blocks of one prompt */
	int64_t now_ns;             /* of the last call */
	struct kvb_pd pd;
	uint64_t gaps[KVB_GAPS];    /* between tokens, by kvb_gap() */
};

/* Ends the program when memory runs out. */
struct kvb_fleet *kvb_fleet_create(
	const struct kvb_fleet_options *options, const struct kvb_jobs *jobs);
void kvb_fleet_destroy(struct kvb_fleet *fleet); /* no request may be under way */

/* Prompt tokens that the worker would reuse, truly. */
uint32_t kvb_fleet_hit(const struct kvb_fleet *fleet, uint32_t worker, const struct kvb_job *job);
/* Nanoseconds that the worker computes for a prompt of which it reuses `hit` tokens, alone. */
double kvb_fleet_prefill_ns(
	const struct kvb_fleet *fleet, uint32_t worker, const struct kvb_job *job, uint32_t hit);

/* A job that goes past the router leaves no trace in the ledger. */
void kvb_fleet_send(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, int64_t now_ns);
/* The same of a job that the prefiller computes first. */
void kvb_fleet_send_parted(struct kvb_fleet *fleet, uint32_t job, uint32_t worker,
	uint32_t prefiller, int64_t now_ns);
/* Its prefiller is through with it: the worker gets it. */
void kvb_fleet_hand_over(struct kvb_fleet *fleet, uint32_t job, int64_t now_ns);
/* Begins a step on the worker if it is idle and has something to do; of a server with ranks on all
 * of them, as long as the longest one. */
void kvb_fleet_wake(struct kvb_fleet *fleet, uint32_t worker, int64_t now_ns);
/* The worker's step or stall is over. Each first and last token goes to fn. Neither: the job's
 * prefiller is through with it. */
typedef void kvb_fleet_token_fn(void *user, uint32_t job, bool first, bool last);
void kvb_fleet_step_over(
	struct kvb_fleet *fleet, uint32_t worker, kvb_fleet_token_fn *fn, void *user);

#endif
