/*
 * share.h - replicas of kvway add up their charges to one key, tenant or model.
 *
 * A store (Redis) has the totals of all replicas' charges. Each replica adds its charges since its
 * last addition, reads the new totals, and charges itself with the additions of the others. So each
 * replica is charged with all use, slightly late: what was granted beyond the limit in between is
 * owed afterwards.
 *
 *	kvw_rate_share_news --- added: kvw_rate_share_totals
 *	                   `--- not:   kvw_rate_share_failed
 *
 * Threads: one thread calls these functions for a subject; requests may be charged at the same
 * time.
 */
#ifndef KVW_RATES_SHARE_H
#define KVW_RATES_SHARE_H

#include "rates/rates.h"

/* A replica that gets no totals for this long counts alone: its charges to minutes are then not
 * shared. */
#define KVW_RATE_APART_NS (INT64_C(2) * 1000000000)

/* Numbers to add to the totals, or the totals themselves. */
struct kvw_rate_sums {
	int64_t requests, tokens;
	int64_t day_tokens; /* of the day */
	uint64_t day;
	int64_t exchanges; /* only in totals: how often they were added to, also with zeros */
};

/* Reads the totals from texts: whole numbers of requests, tokens, tokens of the day, exchanges.
 * False: the texts are no such numbers. */
#define KVW_RATE_TOTALS 4
bool kvw_rate_share_read(
	const struct kvw_slice texts[KVW_RATE_TOTALS], struct kvw_rate_sums *totals);

/* Returns whether an exchange is due. A subject that was idle for ten seconds needs none. */
bool kvw_rate_share_wants(const struct kvw_rate_subject *subject, int64_t now_ns);
/* Takes the charges that were not added to the totals yet; they count as under way. */
void kvw_rate_share_news(struct kvw_rate_subject *subject, const struct kvw_rate_time *time,
	struct kvw_rate_sums *news);
/* Puts charges that could not be added back, for the next try. */
void kvw_rate_share_failed(struct kvw_rate_subject *subject, const struct kvw_rate_sums *news);
/* Takes the totals that result from adding the charges. */
void kvw_rate_share_totals(struct kvw_rate_subject *subject, const struct kvw_rate_sums *news,
	const struct kvw_rate_sums *heard, const struct kvw_rate_time *time);

#endif
