/*
 * foreign.c - finds foreign requests at a worker, from its metrics of waiting and running requests.
 */
#include "fleet/foreign.h"

#define KEEP  0.8 /* factor by which the sums fade when further prompts have ended */
/* largest number of requests of a page that is believed, since the sum of samples has no limit */
#define MOST  1e9
#define PRIOR 16  /* weight, in prompts, of all prompts before the first page */

static double least_of(double a, double b)
{
	return a < b ? a : b;
}

/* Returns how much the reported number exceeds the own one, as a valid count. */
static uint32_t beyond(double said, double own)
{
	return said > own ? (uint32_t)least_of(said - own, MOST) : 0;
}

void kvw_foreign_restarted(struct kvw_foreign *foreign)
{
	struct kvw_load_sequences own = foreign->own;

	*foreign = (struct kvw_foreign){.own = own};
}

void kvw_foreign_asked(struct kvw_foreign *foreign, const struct kvw_load_sequences *own)
{
	foreign->own = *own;
}

/* Computes the foreign requests from this page alone. */
static void compare(const struct kvw_foreign *foreign, const struct kvw_scrape *page,
	const struct kvw_load_sequences *own, uint32_t *waiting, uint32_t *running)
{
	double sent = (double)(own->sent - foreign->own.sent);
	uint32_t all = 0;

	*waiting = *running = 0;
	if (page->requests_waiting < 0 || page->requests_running < 0)
		return;
	all = beyond(
		page->requests_waiting + page->requests_running, (double)foreign->own.all + sent);
	*waiting = beyond(page->requests_waiting, (double)foreign->own.unanswered + sent);
	if (*waiting > all)
		*waiting = all;
	*running = all - *waiting;
}

static void note_counters(struct kvw_foreign *foreign, const struct kvw_scrape *page)
{
	foreign->counted = page->prompts > 0 && page->prompt_tokens >= 0;
	foreign->prompts = page->prompts;
	foreign->prompt_tokens = page->prompt_tokens;
	foreign->cache_queries = page->cache_queries;
	foreign->cache_hits = page->cache_hits;
}

static double share_of(double hits, double queries)
{
	return queries > 0 && hits > 0 ? least_of(hits / queries, 1) : 0;
}

/* Learns the recent mean length of prompts, and of their cached part. */
static void learn_prompts(struct kvw_foreign *foreign, const struct kvw_scrape *page)
{
	double prompts = page->prompts - foreign->prompts;
	double tokens = page->prompt_tokens - foreign->prompt_tokens;

	if (page->prompts <= 0 || page->prompt_tokens < 0)
		return;
	if (!foreign->counted || prompts < 0 || tokens < 0) {
		foreign->mean_prompts = least_of(page->prompts, PRIOR);
		foreign->mean_tokens = page->prompt_tokens / page->prompts * foreign->mean_prompts;
		foreign->hit_share = share_of(page->cache_hits, page->cache_queries);
	} else if (prompts > 0) {
		foreign->mean_prompts = foreign->mean_prompts * KEEP + prompts;
		foreign->mean_tokens = foreign->mean_tokens * KEEP + tokens;
		foreign->hit_share =
			foreign->hit_share * KEEP +
			(1 - KEEP) * share_of(page->cache_hits - foreign->cache_hits,
					     page->cache_queries - foreign->cache_queries);
	}
}

/* Learns the time that the worker takes per waiting request. */
static void learn_time(struct kvw_foreign *foreign, const struct kvw_scrape *page, int64_t now_ns)
{
	double came = page->first_tokens - foreign->first_tokens;
	double ns = (double)(now_ns - foreign->token_ns);

	if (page->requests_waiting <= 0 || page->first_tokens < 0) {
		foreign->token_ns = 0;
	} else if (foreign->token_ns == 0 || came < 0) {
		foreign->token_ns = now_ns;
		foreign->first_tokens = page->first_tokens;
		foreign->each_ns = 0;
	} else if (came > 0) {
		foreign->each_ns =
			foreign->each_ns > 0 ? (foreign->each_ns + ns / came) / 2 : ns / came;
		foreign->token_ns = now_ns;
		foreign->first_tokens = page->first_tokens;
	}
}

void kvw_foreign_read(struct kvw_foreign *foreign, const struct kvw_scrape *page,
	const struct kvw_load_sequences *own, int64_t now_ns, struct kvw_foreign_found *out)
{
	uint32_t waiting = 0;
	uint32_t running = 0;

	compare(foreign, page, own, &waiting, &running);
	learn_prompts(foreign, page);
	note_counters(foreign, page);
	learn_time(foreign, page, now_ns);
	*out = (struct kvw_foreign_found){
		.waiting = waiting < foreign->waiting ? waiting : foreign->waiting,
		.running = running < foreign->running ? running : foreign->running,
		.prompt_tokens = KVW_FOREIGN_PROMPT,
		.each_ns = foreign->token_ns == 0 ? 0 : foreign->each_ns,
		.since_ns = foreign->token_ns == 0 ? 0 : (double)(now_ns - foreign->token_ns),
	};
	if (foreign->mean_prompts > 0) {
		out->prompt_tokens = foreign->mean_tokens / foreign->mean_prompts;
		out->cached_tokens = out->prompt_tokens * foreign->hit_share;
	}
	foreign->waiting = waiting;
	foreign->running = running;
}
