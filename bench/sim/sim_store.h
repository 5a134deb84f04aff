/*
 * sim_store.h - the tiers below one simulated device: libkvtier, as a real worker's connector uses
 * it.
 *
 *	engine: a sequence waits      -> ask     kvt_find_begin, what is in L1, NVMe, L2
 *	engine: it has blocks         -> fetch   kvt_get_begin -> lease -> bytes checked -> release
 *	engine: a step ends           -> put     chunks that the step completed, filled and committed
 *
 * Two clocks are used here. The library's work is real and takes real time. Its cost for the worker
 * is simulated: with modelled transfers each question and each fetch has a simulated end, which is
 * known when it begins (sim_link.h). The worker plans no step that begins after that end before the
 * real operation is done: simulated time stands still until then. So the simulation depends on the
 * model, and not on how busy the machine is. This wait has a limit, since a shared tier may hang;
 * kvb_store_give_up is called when it is reached. With measured transfers the end is when the real
 * operation is done.
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
	uint32_t index; /* number of the worker, which names its folder on NVMe */
	struct kvb_sim_clock clock;
	struct event_base *base;
	bool events;               /* puts have the names of blocks */
	void (*woken)(void *user); /* an operation for which the worker waited is done */
	void *user;
};

/* Returns NULL on failure, with a message on standard error. May wait for another owner of the
 * folder. */
struct kvb_store *kvb_store_create(const struct kvb_store_config *config);
/* No sequence may have an operation under way. NULL is allowed. */
void kvb_store_destroy(struct kvb_store *store);

/* These are called by the engine's watch; see sim_engine.h. `tenant` is the text of the salt, NULL:
 * none; `lora` is an adapter's name or NULL. */
bool kvb_store_ask(struct kvb_store *store, struct kvb_seq *seq, int64_t now_ns, uint32_t hits,
	uint32_t *tokens);
bool kvb_store_fetch(struct kvb_store *store, struct kvb_seq *seq, int64_t now_ns, uint32_t hits,
	uint32_t tokens);
void kvb_store_drop(struct kvb_store *store, struct kvb_seq *seq);
void kvb_store_computed(
	struct kvb_store *store, struct kvb_seq *seq, const char *tenant, const char *lora);

/* To be called when a step ends that computed so many prompt tokens in length_ns: puts its
 * chunks. */
void kvb_store_step_ends(
	struct kvb_store *store, int64_t end_ns, uint64_t prefill_tokens, int64_t length_ns);

/* To be called before a step that begins at now_ns: passes the engine the chunks that have been
 * loaded by then. Returns false if an operation that must be done by then is not; `woken` is called
 * when it is. */
bool kvb_store_advance(struct kvb_store *store, struct kvb_engine *engine, int64_t now_ns);
/* Stops waiting for operations that are late. */
void kvb_store_give_up(struct kvb_store *store, int64_t now_ns);
/* Returns the next simulated time at which there may be something to plan; INT64_MAX: none is
 * known. */
int64_t kvb_store_next_ns(const struct kvb_store *store);

struct kvb_store_stats {
	/* fetches_short: those that got fewer chunks than had been found */
	uint64_t asks, fetches, fetches_short;
	uint64_t left_chunks; /* chunks that were found, but computed because that was faster */
	uint64_t loaded_tokens[3]; /* by tier */
	uint64_t puts, puts_existing, puts_refused; /* chunks */
	uint64_t checked_chunks, wrong_bytes;
	/* how often simulated time stood still; how often it did so up to its limit */
	uint64_t waits, given_up;
	uint64_t under_way;       /* questions, fetches and puts */
};
void kvb_store_stats(const struct kvb_store *store, struct kvb_store_stats *out);

struct kvt *kvb_store_cache(struct kvb_store *store);

#endif
