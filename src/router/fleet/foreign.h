/*
 * foreign.h - requests at a worker that are not ours, found by its metrics of waiting and running
 * requests.
 *
 * Another client asks the worker directly, or another kvway does: the worker has more to do than we
 * gave it. Its metrics count all requests alike, ours too, and are some milliseconds to seconds old
 * when they are read, while ours come and go. So their count is compared with the largest number of
 * our requests at any moment between the question and its answer: requests in flight at the
 * question, and all that were sent since. The rest is foreign. A foreign load is believed as far as
 * two pages in a row show it, so that a page that is wrong, or counts requests whose clients have
 * left, changes nothing; the absence of foreign requests is believed at once.
 *
 * The duration of foreign requests is read from the worker's metrics, too: the time per first token
 * while requests wait there. Until a first token has come it is the prefill of a mean prompt among
 * those that ended there lately, less the part that the prefix cache had. A prompt that is longer
 * than that is taken to be half done.
 *
 * Threads: the control thread's. No clock, no I/O.
 */
#ifndef KVW_FOREIGN_H
#define KVW_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "fleet/scrape.h"
#include "kvway/load.h"

#define KVW_FOREIGN_PROMPT 1000 /* tokens, where a worker does not say how long its prompts are */

/* Record of one worker; zeroed at first. */
struct kvw_foreign {
	struct kvw_load_sequences own; /* when the metrics were asked for */
	uint32_t waiting, running;     /* by the last page alone */
	/* Does the worker count its prompts? The next four members are from that page. */
	bool counted;
	double prompts, prompt_tokens, cache_queries, cache_hits;
	double mean_prompts, mean_tokens; /* sums over the last prompts */
	double hit_share;

	/* While requests wait there, page after page. */
	/* When the page came from which on first tokens count; 0: none waited. */
	int64_t token_ns;
	double first_tokens; /* how many there were then */
	double each_ns;      /* time per first token; 0: unknown */
};

/* The foreign load that is believed. */
struct kvw_foreign_found {
	uint32_t waiting, running;
	double prompt_tokens, cached_tokens; /* of one of them, in the mean */
	double each_ns;  /* ns that a foreign request takes, as seen; 0: unknown */
	double since_ns; /* time without a first token while requests waited */
};

/* The worker's metrics are asked for; own: of that moment. */
void kvw_foreign_asked(struct kvw_foreign *foreign, const struct kvw_load_sequences *own);

/* A page of metrics came; own: our requests at this moment. */
void kvw_foreign_read(struct kvw_foreign *foreign, const struct kvw_scrape *page,
	const struct kvw_load_sequences *own, int64_t now_ns, struct kvw_foreign_found *out);

/* The process is another one: its earlier pages do not count. */
void kvw_foreign_restarted(struct kvw_foreign *foreign);

#endif
