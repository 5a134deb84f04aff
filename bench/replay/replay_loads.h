/*
 * replay_loads.h - KV under way to an engine, or to the memory of an LMCache server.
 *
 * Bytes share a link with others, one after the other: a link is the moment from which it is free.
 */
#ifndef KVB_REPLAY_LOADS_H
#define KVB_REPLAY_LOADS_H

#include <stdbool.h>
#include <stdint.h>

struct kvb_load {
	int64_t end_ns;
	uint32_t worker;
	uint32_t job;    /* its engine waits for the load; KVB_NO_JOB: a server loads a chunk */
	uint32_t tokens; /* for a job: tokens that its engine has then */
	uint64_t key;    /* for a server: name of the chunk */
};

/* Zeroed: no load is under way. */
struct kvb_loads {
	struct kvb_load *items; /* owned; in no order */
	uint32_t count, room;
};

void kvb_loads_add(struct kvb_loads *loads, struct kvb_load load);
/* Returns when the next load ends; INT64_MAX: none is under way. */
int64_t kvb_loads_next_ns(const struct kvb_loads *loads);
/* Takes out one load that has ended by now. False: there is none. */
bool kvb_loads_end(struct kvb_loads *loads, int64_t now_ns, struct kvb_load *ended);

/* Takes both links, which may be the same, for `takes_ns` once both are free. Returns when they
 * are free again. */
int64_t kvb_links_take(int64_t *from_ns, int64_t *to_ns, int64_t now_ns, int64_t takes_ns);

#endif
