/*
 * page.h - usage as JSON and as CSV (RFC 4180), for GET /usage and GET /v1/usage.
 *
 *	{"since": TIME, "until": TIME,
 *	 "entries": [{"key": NAME|null, "tenant": NAME|null, "model": NAME|null,
 *	              "requests": N, ...}],
 *	 "other": {"requests": N, ..., "entries": N}}
 *
 * The entry with the most tokens comes first. `other` has what is in no entry. `since` is the
 * beginning of the hour that contains the wished time, or of the oldest hour that is kept.
 *
 * Threads: any.
 */
#ifndef KVW_USAGE_PAGE_H
#define KVW_USAGE_PAGE_H

#include "base/page.h"
#include "kvway/err.h"
#include "usage/ledger.h"

struct kvw_usage_question {
	int64_t since_s;             /* seconds since 1970; 0: from the oldest hour on */
	const struct kvw_slice *key; /* the name of the only key that counts; NULL: all do */
	size_t top;                  /* most entries, the others go to `other`; 0: all */
	bool csv;
};

#define KVW_USAGE_SINCE_EXPECTED                                                                   \
	"a time such as 2026-11-30T08:00:00Z or 2026-11-30 (UTC), seconds since 1970, or a "       \
	"duration such as 24h"

/* Reads a time: KVW_USAGE_SINCE_EXPECTED. A duration counts back from wall_s. False: it is none. */
bool kvw_usage_since(const char *text, int64_t wall_s, int64_t *since_s) KVW_MUST_CHECK;

/* Appends the answer; page->failed if memory is out. */
void kvw_usage_page(struct kvw_ledger *ledger, const struct kvw_usage_question *question,
	int64_t wall_s, struct kvw_page *page);

#endif
