/*
 * sim_store.h - the tiers below one simulated device: libkvtier, as a real worker's connector uses it.
 *
 *	engine: a sequence waits      -> ask     kvt_find_begin, what is in L1, NVMe, L2
 *	engine: it has blocks         -> fetch   kvt_get_begin -> lease -> bytes checked -> release
 *	engine: a step ends           -> put     chunks that the step completed, filled and committed
 *
 * Two clocks meet here. What the library does is real and takes real time. What it costs the worker
 * is simulated: with modelled transfers each question and each fetch has a simulated moment at which
 * it ends, known when it begins (sim_link.h). The worker plans no step that begins after that moment
 * before the real thing is done: simulated time stands still meanwhile, and goes on from where it
 * was. So what is simulated depends on the model and not on how busy the machine is. There is a limit to
 * that patience, since a shared tier may hang; kvb_store_give_up says that it has been reached.
 * With measured transfers an end is when the real thing is done.
 *
 * Belongs to one event loop, which it never blocks after it was made. Each lease is released and each
 * operation taken exactly once, whatever becomes of the sequence.
 */
#ifndef KVB_SIM_STORE_H
#define KVB_SIM_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"
#include "bench/sim/sim_clock.h"
#include "bench/sim/sim_engine.h"

struct event_base;
struct kvb_options;
struct kvb_store;

struct kvb_store_config {
	const struct kvb_options *options; /* borrowed */
	uint32_t index;                    /* of the worker: names its folder on NVMe */
	struct kvb_sim_clock clock;
	struct event_base *base;
	bool events;               /* puts carry names of blocks */
	void (*woken)(void *user); /* something that was waited for is done */
	void *user;
};

/* NULL with a message on standard error. May wait for another owner of the folder. */
struct kvb_store *kvb_store_create(const struct kvb_store_config *config);
/* No sequence may have anything under way. NULL is allowed. */
void kvb_store_destroy(struct kvb_store *store);

/* What the engine's watch calls; see sim_engine.h. `tenant` is the salt's text, NULL: none; `lora` an
 * adapter's name or NULL. */
bool kvb_store_ask(struct kvb_store *store, struct kvb_seq *seq, int64_t now_ns, uint32_t hits,
	uint32_t *tokens);
bool kvb_store_fetch(struct kvb_store *store, struct kvb_seq *seq, int64_t now_ns, uint32_t hits,
	uint32_t tokens);
void kvb_store_drop(struct kvb_store *store, struct kvb_seq *seq);
void kvb_store_computed(
	struct kvb_store *store, struct kvb_seq *seq, const char *tenant, const char *lora);

/* A step that computed so many prompt tokens in length_ns ends: its chunks are put. */
void kvb_store_step_ends(
	struct kvb_store *store, int64_t end_ns, uint64_t prefill_tokens, int64_t length_ns);

/* Before a step that begins at now_ns: hands the engine what has been loaded by then. False:
 * something that must be done by then is not; `woken` is called when it is. */
bool kvb_store_advance(struct kvb_store *store, struct kvb_engine *engine, int64_t now_ns);
/* What is late is not waited for any longer. */
void kvb_store_give_up(struct kvb_store *store, int64_t now_ns);
/* The next simulated moment at which there may be something to plan; INT64_MAX: none that is known. */
int64_t kvb_store_next_ns(const struct kvb_store *store);

struct kvb_store_stats {
	uint64_t asks, fetches, fetches_short; /* short: less came than had been found */
	uint64_t left_chunks;      /* found, but left to be computed, because that was faster */
	uint64_t loaded_tokens[3]; /* by tier */
	uint64_t puts, puts_existing, puts_refused; /* chunks */
	uint64_t checked_chunks, wrong_bytes;
	uint64_t waits, given_up; /* times that simulated time stood still; that patience ended */
	uint64_t under_way;       /* questions, fetches and puts */
};
void kvb_store_stats(const struct kvb_store *store, struct kvb_store_stats *out);

struct kvt *kvb_store_cache(struct kvb_store *store);

#endif
