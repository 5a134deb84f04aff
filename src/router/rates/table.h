/*
 * table.h - the counts of each key, tenant and model that has limits, by name.
 *
 * A subject (one key, tenant or model) is made for its first request, and kept: rereading the keys
 * file must not reset counts. The table is bounded; a full table drops idle subjects (full budgets,
 * unused today), else a subject that no request holds.
 *
 * Threads: any. A look-up takes a short lock of the subject's part of the table (1 of 64); a
 * subject's counts are atomic words.
 */
#ifndef KVW_RATES_TABLE_H
#define KVW_RATES_TABLE_H

#include "kvway/err.h"
#include "kvway/slice.h"
#include "rates/bucket.h"

#define KVW_RATE_SUBJECTS_MOST 524288

enum kvw_rate_kind { KVW_RATE_KEY, KVW_RATE_TENANT, KVW_RATE_MODEL, KVW_RATE_KINDS };

/* This replica's view of the shared totals of a subject; used only by the thread of share.h. */
struct kvw_rate_shared {
	/* part of this replica's charges that was added to the totals */
	int64_t requests_sent, tokens_sent;
	int64_t day_sent[2];                /* the same of day_charged */
	/* the totals of all replicas when they were last read */
	int64_t requests_seen, tokens_seen;
	int64_t day_seen;
	int64_t exchanges_seen;
	uint64_t day;      /* of day_seen */
	int64_t seen_ns;   /* when they were last read; 0: never */
	int64_t looked_ns; /* when charges were last taken to be sent */
	bool failed;       /* the last charges could not be sent */
	uint32_t round;    /* number of the thread's last round that included the subject */
};

/* Use by one key, tenant or model. */
struct kvw_rate_subject {
	struct kvw_rate_subject *next; /* next subject of the chain; guarded by the part's lock */
	uint64_t hash;
	enum kvw_rate_kind kind;
	size_t name_len;
	_Atomic uint32_t users;   /* number of requests that hold it */
	_Atomic uint32_t learned; /* average tokens of an answer; 0: none has ended yet */
	_Atomic int64_t running;  /* requests */
	struct kvw_bucket requests, tokens;
	struct kvw_day day;               /* tokens */
	/* charges since the subject was made, less units given back */
	_Atomic int64_t requests_charged;
	_Atomic int64_t tokens_charged;
	/* Tokens of even and of odd days, since a request is charged to the day on which it
	 * began. */
	_Atomic int64_t day_charged[2];
	/* The limits that the last request had. */
	_Atomic int64_t requests_per_minute, tokens_per_minute, burst_ns;
	struct kvw_rate_shared shared;
	char name[];
};

struct kvw_rate_table;

/* Makes a table for this many subjects, at least 64. NULL: out of memory. */
struct kvw_rate_table *kvw_rate_table_create(size_t most);
/* no subject may be held; NULL is allowed */
void kvw_rate_table_destroy(struct kvw_rate_table *table);

/* Finds or makes a subject, which the caller holds until kvw_rate_subject_put. NULL: out of memory.
 * today: the present day, as in kvw_day. */
struct kvw_rate_subject *kvw_rate_table_hold(struct kvw_rate_table *table, enum kvw_rate_kind kind,
	struct kvw_slice name, int64_t now_ns, uint64_t today);
/* Finds a subject, which the caller holds, too; NULL: none. */
struct kvw_rate_subject *kvw_rate_table_find(
	struct kvw_rate_table *table, enum kvw_rate_kind kind, struct kvw_slice name);
void kvw_rate_subject_put(struct kvw_rate_subject *subject);

/* Returns the day to count by. A clock that goes back over midnight is ignored: the later day
 * stays. Only a clock that goes back by more than a day is followed, since it was wrong before. */
uint64_t kvw_rate_table_day(struct kvw_rate_table *table, uint64_t today);

/* Calls fn for each subject, with the lock of its part of the table held: fn must be quick and not
 * call this table. */
void kvw_rate_table_each(struct kvw_rate_table *table,
	void (*fn)(void *arg, struct kvw_rate_subject *subject), void *arg);
/* Calls fn for some subjects at a time; *cursor: 0 at first. False: these were the last. */
bool kvw_rate_table_some(struct kvw_rate_table *table, size_t *cursor,
	void (*fn)(void *arg, struct kvw_rate_subject *subject), void *arg);
size_t kvw_rate_table_count(const struct kvw_rate_table *table);

#endif
