/*
 * foreign.h - finds foreign requests at a worker, from its metrics of waiting and running requests.
 *
 * If another client or another kvway uses the worker, it has more work than this kvway gave it. Its
 * metrics count all requests, including those of this kvway, and are some milliseconds to seconds
 * old when they are read, while requests come and go. So their count is compared with the largest
 * number that this kvway can have had there at any moment between the question and its answer:
 * requests in flight at the question, and all that were sent since. The rest is foreign. A foreign
 * load counts as far as two pages in a row show it, so that a wrong page, or one that counts
 * requests whose clients have left, has no effect; the absence of foreign requests counts at once.
 *
 * The duration of foreign requests is read from the worker's metrics, too: the time per first token
 * while requests wait there. Until a first token has come it is the prefill of a mean prompt among
 * those that ended there lately, less the part in the prefix cache. A longer prompt is assumed to
 * be half done.
 *
 * Threads: the control thread's. No clock, no I/O.
 */
#ifndef KVW_FOREIGN_H
#define KVW_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "fleet/scrape.h"
#include "kvway/load.h"

/* assumed tokens of a prompt, if a worker does not report the length of its prompts */
#define KVW_FOREIGN_PROMPT 1000

/* Record of one worker; zeroed at first. */
struct kvw_foreign {
	struct kvw_load_sequences own; /* this kvway's requests when the metrics were requested */
	uint32_t waiting, running;     /* foreign requests by the last page alone */
	/* Whether the worker reports the lengths of its prompts. The next four members are from
	 * that page. */
	bool counted;
	double prompts, prompt_tokens, cache_queries, cache_hits;
	double mean_prompts, mean_tokens; /* sums over recent prompts */
	double hit_share;

	/* Members in use while requests wait at the worker, page after page. */
	/* Time of the page since which first tokens are counted; 0: no request waited. */
	int64_t token_ns;
	double first_tokens; /* the worker's number of first tokens in that page */
	double each_ns;      /* time per first token; 0: unknown */
};

/* The resulting foreign load. */
struct kvw_foreign_found {
	uint32_t waiting, running;
	double prompt_tokens, cached_tokens; /* means of one foreign request */
	double each_ns;  /* observed ns per foreign request; 0: unknown */
	double since_ns; /* time for which requests have waited without any first token */
};

/* Called when the worker's metrics are requested; own: this kvway's requests at that moment. */
void kvw_foreign_asked(struct kvw_foreign *foreign, const struct kvw_load_sequences *own);

/* Compares a page of metrics with this kvway's requests at this moment, `own`. */
void kvw_foreign_read(struct kvw_foreign *foreign, const struct kvw_scrape *page,
	const struct kvw_load_sequences *own, int64_t now_ns, struct kvw_foreign_found *out);

/* Drops earlier pages, since the worker is another process. */
void kvw_foreign_restarted(struct kvw_foreign *foreign);

#endif
