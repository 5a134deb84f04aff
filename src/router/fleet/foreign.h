/*
 * foreign.h - requests at a worker that are not ours, by what its metrics say waits and runs there.
 *
 * Another client asks the worker directly, or another kvway does: the worker has more to do than we
 * gave it. Its metrics count all requests alike, ours too, and are some milliseconds to seconds old
 * when they are read, while ours come and go. So what they count is compared with the most that
 * ours can have been at any moment between the question and its answer: those in flight when it was
 * asked, and all that were sent since. What is beyond that is foreign. It is believed as far as two
 * pages in a row say it, so that one page that is wrong, or counts requests whose clients have
 * left, changes nothing; that there is none is believed at once.
 *
 * How long they take is the worker's own word, too: the time per first token while requests wait
 * there. Until one has come meanwhile it is the prefill of a mean prompt of those that ended there
 * lately, less what the prefix cache had of it. A prompt that is longer than that is taken to be
 * half done.
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

/* Of one worker; zeroed at first. */
struct kvw_foreign {
	struct kvw_load_sequences own; /* when the metrics were asked for */
	uint32_t waiting, running;     /* by the last page alone */
	/* It says how many prompts there were; the next four are of it. */
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

/* What is believed. */
struct kvw_foreign_found {
	uint32_t waiting, running;
	double prompt_tokens, cached_tokens; /* of one of them, in the mean */
	double each_ns;  /* what one of them takes, as seen; 0: unknown */
	double since_ns; /* for so long no first token has come, while requests waited */
};

/* The worker's metrics are asked for; own: of that moment. */
void kvw_foreign_asked(struct kvw_foreign *foreign, const struct kvw_load_sequences *own);

/* They came; own: of this moment. */
void kvw_foreign_read(struct kvw_foreign *foreign, const struct kvw_scrape *page,
	const struct kvw_load_sequences *own, int64_t now_ns, struct kvw_foreign_found *out);

/* The process is another one: what it said before does not count. */
void kvw_foreign_restarted(struct kvw_foreign *foreign);

#endif
