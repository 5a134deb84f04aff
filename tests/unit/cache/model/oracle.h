/*
 * oracle.h - what a cache may say, kept as a plain array: one entry for each chunk of a history.
 *
 * Chunks are named by a number: chain * depth + position. Their bytes follow from that number and a
 * generation, which goes up whenever what was there must never be seen again (erase, reset,
 * expiry). So bytes that come back show which put they are from, and a chunk that rose from the
 * dead is known from one that was put again.
 */
#ifndef MODEL_ORACLE_H
#define MODEL_ORACLE_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

#define TENANTS 3

enum presence {
	GONE, /* never put, or erased, or expired for certain: only a miss is right */
	MAY,  /* was committed and may have been evicted or lost since */
	MUST, /* was committed, and nothing has happened that would excuse a miss */
};

struct entry {
	enum presence presence;
	uint32_t generation; /* of what was, or will be, put */
	uint32_t oldest;     /* generations from this one on may come back */
	uint32_t filling;    /* open reservations that hold it */
	int64_t put_ns;      /* when its time to live began, if it was not used since */
	int64_t used_ns;     /* when something happened that may count as a use */
	bool chained;        /* its chain does not keep it from the tier below: see oracle_committed */
	bool drained;        /* a drain has ended well since, and it is chained: it is stored below */
	bool risen;          /* its erase was not durable when a crash came: see oracle_excuse */
};

struct oracle {
	struct entry *entries; /* owned; chains * depth */
	uint32_t chains, depth;
	uint64_t least, most; /* bytes of a chunk */
	uint64_t ttl_ns;      /* 0: none */
};

void oracle_init(struct oracle *oracle, uint32_t chains, uint32_t depth, uint64_t least,
	uint64_t most, uint64_t ttl_ns);
void oracle_finish(struct oracle *oracle);

struct kvt_key oracle_key(uint32_t id);
struct kvt_tenant oracle_tenant(const struct oracle *oracle, uint32_t id);
uint32_t oracle_tenant_number(const struct oracle *oracle, uint32_t id);

uint64_t oracle_bytes(const struct oracle *oracle, uint32_t id, uint32_t generation);
void oracle_fill(const struct oracle *oracle, uint32_t id, uint32_t generation, uint8_t *to);

/* Are these the bytes of a generation that may come back? */
bool oracle_agrees(const struct oracle *oracle, uint32_t id, const uint8_t *bytes, uint64_t len);

/*
 * since_ns: when its time to live began. parent_fills: a reservation fills its parent.
 *
 * A tier below stores a chunk whose parent it has or that is still being filled, and no other. So a chunk is
 * chained if it is the first, if its parent is certain and chained, or while its parent is filled and what
 * comes of that is certain and chained. A chunk that is not yet stored below is so no more when its parent is
 * lost, nor are those behind it.
 */
void oracle_committed(struct oracle *oracle, uint32_t id, int64_t since_ns, int64_t now_ns, bool parent_fills);
/* A drain has ended well: what is certain and chained is stored below. */
void oracle_drained(struct oracle *oracle);
/* The chunk was being filled and never came: no chunk can hang on it. */
void oracle_aborted(struct oracle *oracle, uint32_t id);
void oracle_used(struct oracle *oracle, uint32_t id, int64_t now_ns);

/* Nothing of it may be seen from now on. surely: not after a crash either. */
void oracle_gone(struct oracle *oracle, uint32_t id, bool surely);

/* Time has passed: what is certainly expired is gone, what might be is excused. */
void oracle_age(struct oracle *oracle, int64_t now_ns);

/*
 * What was certain is so no more; keep_drained: but for what is stored below. A chunk that a crash may have
 * brought back is not: others may have been written over its room after its erase, which only its next read
 * finds out, and a put of it in between is not written down a second time.
 */
void oracle_excuse(struct oracle *oracle, bool keep_drained);

#endif
