/*
 * share.h - what replicas of kvway charge to one key, tenant or model comes together.
 *
 * Somewhere there are totals of what all replicas have charged. Each adds to them what it has
 * charged since it did so last, hears what they are then, and charges itself with what the others
 * have added. So each has charged all, a moment late: what one grants too much in that moment it
 * owes afterwards.
 *
 * 	kvw_rate_share_news --- added: kvw_rate_share_totals
 * 	                   `--- not:   kvw_rate_share_failed
 *
 * Threads: of one subject, one thread calls these; requests are charged meanwhile.
 */
#ifndef KVW_RATES_SHARE_H
#define KVW_RATES_SHARE_H

#include "rates/rates.h"

/* After so long without the totals a replica counts alone:
 * what it charges to minutes stays its own. */
#define KVW_RATE_APART_NS (INT64_C(2) * 1000000000)

/* What is to be added to the totals, or what they are. */
struct kvw_rate_sums {
	int64_t requests, tokens;
	int64_t day_tokens; /* of the day */
	uint64_t day;
	int64_t exchanges; /* of the totals: how often something, or nothing, was added to them */
};

/* The totals as texts of whole numbers: requests, tokens, those of the day, exchanges.
 * False: they are none. */
#define KVW_RATE_TOTALS 4
bool kvw_rate_share_read(
	const struct kvw_slice texts[KVW_RATE_TOTALS], struct kvw_rate_sums *totals);

/* Is there something to exchange? A subject that was idle for ten seconds has nothing. */
bool kvw_rate_share_wants(const struct kvw_rate_subject *subject, int64_t now_ns);
/* What was charged and not added yet; from now on it is under way. */
void kvw_rate_share_news(struct kvw_rate_subject *subject, const struct kvw_rate_time *time,
	struct kvw_rate_sums *news);
/* It was not added: it will be the next time. */
void kvw_rate_share_failed(struct kvw_rate_subject *subject, const struct kvw_rate_sums *news);
/* It was, and these are the totals with it. */
void kvw_rate_share_totals(struct kvw_rate_subject *subject, const struct kvw_rate_sums *news,
	const struct kvw_rate_sums *heard, const struct kvw_rate_time *time);

#endif
