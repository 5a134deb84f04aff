/*
 * replay_fleet.h - the simulated workers, and the data that a router has about them.
 *
 * Each worker is an engine of bench/sim in simulated time. In addition to the engines the fleet has
 * a ledger of everything that any router sees: which requests it sent to which worker, which have
 * had their first token, which have ended. All policies read the same ledger.
 *
 * kvb_fleet_hit() is more than most routers have: the engine's cache as it is, at this moment,
 * together with the prompts that were sent there and are not yet computed. It simulates a perfect
 * stream of KV events, for those policies of other projects that use such a stream.
 */
#ifndef KVB_REPLAY_FLEET_H
#define KVB_REPLAY_FLEET_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/load.h"
#include "bench/replay/replay_jobs.h"
#include "bench/replay/replay_loads.h"
#include "bench/replay/replay_mp.h"
#include "bench/replay/replay_pd.h"
#include "bench/replay/replay_scale.h"
#include "bench/sim/sim_engine.h"

/* How one worker differs from the others. All zeroes: it does not. */
struct kvb_oddity {
	double slower;          /* every step takes so many times as long; 0 means 1 */
	int64_t stall_begin_ns; /* it begins no step from here on ... */
	int64_t stall_end_ns;   /* ... to here */
};

/* Caches that are emptied without the router's knowledge, one worker after the other. Requests that
 * run there start again, as with vLLM's reset_running_requests. All zeroes: none is emptied. */
struct kvb_resets {
	int64_t begin_ns; /* of worker 0 */
	int64_t every_ns; /* when the next worker's cache is emptied; 0: never */
};

/* Times between tokens are counted in 64 classes to each doubling, up to 2^42 ns. */
#define KVB_GAPS (42 * 64)

struct kvb_routers; /* replay_routers.h */

struct kvb_fleet_options {
	uint32_t workers;
	const struct kvb_profile *profile; /* borrowed */
	uint32_t block_size;               /* in tokens; divides KVB_ID_TOKENS */
	uint32_t kv_tokens;                /* tokens in the KV cache of each worker */
	uint32_t max_batched_tokens;       /* most tokens of a step */
	uint32_t max_seqs;                 /* most sequences that run at once on a worker */
	struct kvb_oddity odd;             /* how worker 0 differs */
	struct kvb_resets resets;
	struct kvb_pd_options pd;
	struct kvb_mp_options mp;
	/* workers per server, which compute their steps together; 1: each is alone */
	uint32_t ranks;
	struct kvb_scale_options scale;
	const struct kvb_routers *routers; /* for the policy `routers`; NULL: one router */
};

/* The data that a router has about one worker from its own traffic. */
struct kvb_sent {
	uint32_t inflight;       /* requests not ended */
	uint32_t unanswered;     /* number of those without a first token */
	/* uncached tokens of the unanswered requests, as predicted when they were sent */
	uint64_t prefill_tokens;
	struct kvw_load
		load; /* the same in seconds by the profile's own figures, decreasing with time */
};

/* The course of one request. */
struct kvb_course {
	int64_t due_ns;   /* when it first arrived; if refused, it may arrive again */
	int64_t asked_ns; /* when it arrived the last time */
	/* when it was sent to a worker; first_ns 0: it has no token yet */
	int64_t sent_ns, first_ns, end_ns;
	uint32_t refusals;
	uint32_t worker;
	uint32_t prefiller; /* worker that computes its prompt; KVB_ROUTED: its own */
	int64_t prefilled_ns, token_ns; /* the last token; of the prefiller, if there is one */
	uint32_t predicted;              /* result of kvb_fleet_hit() when it was sent */
	uint32_t cached;                 /* number of tokens that the engine reused */
	bool came, waiting, sent, ended; /* waiting: the admission holds it */
	bool refused;                    /* refused for good */
	bool to_pull;                    /* its worker pulls KV that was prefilled for it */
	struct kvw_lease lease;
	struct kvb_seq *seq; /* on the prefiller, then on the worker */
	/* neighbours in the worker's list of unanswered jobs; KVB_NO_JOB: none */
	uint32_t before, after;
};

struct kvb_fleet_worker {
	struct kvb_engine *engine;
	struct kvb_profile profile; /* the worker's own profile, since worker 0 may be slower */
	struct kvb_oddity odd;
	struct kvb_sent sent;
	uint32_t unanswered; /* first job of the list; KVB_NO_JOB: none */
	bool busy;           /* true: in a step, or stalled */
	bool stalled;
	int64_t began_ns, until_ns; /* of that */
	uint32_t decoded; /* tokens of the step, without those that were the first of an answer */
	int64_t reset_ns; /* when its cache is emptied; INT64_MAX: never */
	enum kvb_worker_state state;
	uint32_t generation; /* grows with each worker that takes this place */
};

struct kvb_fleet {
	struct kvb_fleet_options options;
	const struct kvb_jobs *jobs; /* borrowed */
	struct kvb_fleet_worker *workers;
	struct kvb_course *courses; /* by job */
	uint64_t *hashes;           /* scratch memory for the blocks of one prompt */
	int64_t now_ns;             /* time of the last call */
	uint64_t changes;           /* of workers' states */
	struct kvb_pd pd;
	struct kvb_mp mp;
	struct kvb_loads loads;     /* of engines and servers */
	uint64_t gaps[KVB_GAPS];    /* between tokens, by kvb_gap() */
};

/* Ends the program if memory runs out. */
struct kvb_fleet *kvb_fleet_create(
	const struct kvb_fleet_options *options, const struct kvb_jobs *jobs);
void kvb_fleet_destroy(struct kvb_fleet *fleet); /* no request may be under way */

/* Returns the job of an engine's sequence. */
static inline uint32_t kvb_fleet_job(const struct kvb_fleet *fleet, const struct kvb_seq *seq)
{
	return (uint32_t)((const struct kvb_course *)seq->user - fleet->courses);
}

/* Returns the time that the KV of so many tokens takes at that speed. */
static inline int64_t kvb_fleet_way_ns(
	const struct kvb_fleet *fleet, uint32_t tokens, double bytes_per_ns)
{
	return (int64_t)((double)tokens * fleet->options.profile->kv_bytes / bytes_per_ns);
}

/* Returns the prompt tokens that the worker would really reuse. */
uint32_t kvb_fleet_hit(const struct kvb_fleet *fleet, uint32_t worker, const struct kvb_job *job);
/* Returns the nanoseconds that the worker alone needs for a prompt of which it reuses `hit`
 * tokens. */
double kvb_fleet_prefill_ns(
	const struct kvb_fleet *fleet, uint32_t worker, const struct kvb_job *job, uint32_t hit);

/* A job that goes past the router is not entered into the ledger. */
void kvb_fleet_send(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, int64_t now_ns);
/* Sends a job whose prompt the prefiller computes first. */
void kvb_fleet_send_parted(struct kvb_fleet *fleet, uint32_t job, uint32_t worker,
	uint32_t prefiller, int64_t now_ns);
/* Called when the job's prefiller has finished: the worker gets the job. */
void kvb_fleet_hand_over(struct kvb_fleet *fleet, uint32_t job, int64_t now_ns);
/* Begins a step on the worker if it is idle and has something to do; of a server with ranks on all
 * of them, as long as the longest one. */
void kvb_fleet_wake(struct kvb_fleet *fleet, uint32_t worker, int64_t now_ns);
/* Passes on the loads that have ended by now. */
void kvb_fleet_loaded(struct kvb_fleet *fleet, int64_t now_ns);
/* The worker's step or stall is over. Each first and last token goes to fn. Neither: the job's
 * prefiller is through with it. */
typedef void kvb_fleet_token_fn(void *user, uint32_t job, bool first, bool last);
void kvb_fleet_step_over(
	struct kvb_fleet *fleet, uint32_t worker, kvb_fleet_token_fn *fn, void *user);

#endif
