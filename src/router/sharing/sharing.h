/*
 * sharing.h - replicas of kvway share counts of limits (rate_sharing), load (replicas) and usage in
 * Redis.
 *
 * A thread adds, every rate_sharing.interval, the charges to each key, tenant and model to totals
 * in Redis and charges the others' additions (rates/share.h); and every replicas.interval it sends
 * this replica's load on each worker and receives the others' (load_round.h). Every second it adds
 * usage to totals (usage_round.h). Requests never wait for it. If limits and load have the same
 * URL, one thread and one connection do all.
 *
 * Threads: create, start, stop by one; the state is read by any.
 */
#ifndef KVW_SHARING_H
#define KVW_SHARING_H

#include <stdatomic.h>
#include <stdio.h>

#include "config/config.h"
#include "rates/table.h"

struct kvw_admission;
struct kvw_duty;
struct kvw_fleet;
struct kvw_ledger;
struct kvw_sharing;

/* For metrics. */
struct kvw_sharing_state {
	_Atomic uint64_t exchanged; /* totals received */
	_Atomic uint64_t failed;    /* failed exchanges */
	_Atomic bool working;       /* in the last round totals were received */
};

/* State of shared load, for metrics. */
struct kvw_load_state {
	_Atomic uint64_t commands;  /* sent */
	_Atomic uint64_t ok, failed;
	/* Bytes of commands that were sent, and of messages in their replies. */
	_Atomic uint64_t said_bytes, heard_bytes;
	/* Messages by their fate. */
	_Atomic uint64_t heard_new, heard_old, heard_bad, heard_full;
	_Atomic uint32_t peers;     /* replicas whose load counts */
	_Atomic int64_t oldest_ns;  /* age of the oldest message that counts now */
	_Atomic float trust;        /* trust in the least trusted replica, 0..1; 1: there is none */
	_Atomic int64_t last_ok_ns; /* 0: never */
	/* No exchange has worked for replicas.life, so only this replica's own load counts. */
	_Atomic bool degraded;
};

/* Kinds of numbers that a thread shares, as bits. */
enum kvw_shared_part { KVW_SHARED_RATES = 1, KVW_SHARED_LOAD = 2, KVW_SHARED_USAGE = 4 };

/* Creates the object, but starts nothing. KVW_EINVAL: the URL, or a file that it names, cannot be
 * used; `errors` has the cause. KVW_ENOMEM. */
enum kvw_err kvw_sharing_create(const struct kvw_config *config, unsigned parts, FILE *errors,
	struct kvw_sharing **out) KVW_MUST_CHECK;
/* Agrees on a task with the other replicas, if load is shared; before the start. name: static;
 * duty: borrowed until kvw_sharing_stop. KVW_ENOMEM. */
enum kvw_err kvw_sharing_agree(struct kvw_sharing *sharing, const struct kvw_config *config,
	const char *name, struct kvw_duty *duty) KVW_MUST_CHECK;
/* Starts the thread. All arguments are borrowed until kvw_sharing_stop; arguments that its parts do
 * not need may be NULL. */
enum kvw_err kvw_sharing_start(struct kvw_sharing *sharing, struct kvw_rate_table *table,
	struct kvw_fleet *fleet, struct kvw_admission *admission,
	struct kvw_ledger *ledger) KVW_MUST_CHECK;
/* Ends the thread, if it runs, and frees everything. NULL is allowed. */
void kvw_sharing_stop(struct kvw_sharing *sharing);

const struct kvw_sharing_state *kvw_sharing_state(const struct kvw_sharing *sharing);
/* Returns the state of shared load; NULL: load is not shared. */
const struct kvw_load_state *kvw_sharing_load_state(const struct kvw_sharing *sharing);

#endif
