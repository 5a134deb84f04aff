/*
 * worth.c - decides between fetching and recomputing.
 *
 * A prefix of j chunks takes F(j) to fetch: for each tier that has any of its chunks, the bytes
 * queued there and the prefix's own bytes, divided by the tier's learned rate, and a little per
 * chunk. It saves R(j): its tokens divided by the engine's learned rate. The engine has to compute
 * all other chunks, so the best j has the largest R(j) - F(j), which one pass finds. Chunks in L1
 * cost next to nothing, so that a slow chunk between fast ones is fetched if the chunks after it
 * pay for it.
 *
 * Rates are learned: the engine reports prefills, and the sums of their tokens and times fade with
 * later ones, so that long prompts count for more than short ones and old speeds fade. Without a
 * rate there is no comparison, and every chunk is worth fetching. A tier that was not used for ten
 * seconds, because it was slow, is used once whatever the cost.
 */
#include "core/lower.h"
#include "core/barrier.h"
#include "core/worth.h"

#define HOLD_NS       200        /* time to hold a chunk in L1 */
#define OVERHEAD_NS   20000      /* cost of each chunk in a lower tier, besides its bytes */
#define FORGET_TOKENS 65536      /* a prefill this many tokens ago counts 1/e */
#define PRIOR_TOKENS  4096       /* weight of the configured rate, as a number of tokens */
#define UNKNOWN_RATE  1000000000 /* assumed bytes a second of a tier that has moved nothing yet */

/* --- the engine ------------------------------------------------------------------------------- */

static void publish(struct kvt_prefill *p)
{
	double rate = p->ns > 0 ? p->tokens / p->ns * 1e9 : 0;

	atomic_store_explicit(&p->tokens_per_second, rate > 0 && rate < 1 ? 1 : (uint64_t)rate,
		memory_order_relaxed);
}

void kvt_prefill_init(struct kvt_prefill *p, double tokens_per_second)
{
	pthread_mutex_init(&p->lock, NULL);
	p->tokens = p->ns = 0;
	if (tokens_per_second > 0) {
		p->tokens = PRIOR_TOKENS;
		p->ns = PRIOR_TOKENS / tokens_per_second * 1e9;
	}
	publish(p);
}

void kvt_prefill_finish(struct kvt_prefill *p)
{
	pthread_mutex_destroy(&p->lock);
}

void kvt_report_prefill(struct kvt *k, uint64_t tokens, uint64_t ns)
{
	struct kvt_prefill *p;
	double keep;

	if (kvt_usable(k) != KVT_OK || tokens == 0 || ns == 0)
		return;
	p = &k->prefill;
	keep = 1 / (1 + (double)tokens / FORGET_TOKENS);
	pthread_mutex_lock(&p->lock);
	p->tokens = p->tokens * keep + (double)tokens;
	p->ns = p->ns * keep + (double)ns;
	publish(p);
	pthread_mutex_unlock(&p->lock);
}

/* --- a chain ---------------------------------------------------------------------------------- */

/* Sums over the first chunks of a chain. */
struct sums {
	size_t chunks;
	double fetch_ns, compute_ns;
	double best; /* largest saving so far, that of the first `worth` chunks */
	size_t worth;
	double worth_fetch_ns, worth_compute_ns;
	uint32_t touched; /* tiers below, as a mask */
	bool regardless;  /* fetch even if computing is faster */
};

static void settle(struct sums *s)
{
	double saving = s->compute_ns - s->fetch_ns;

	if (!s->regardless && saving <= s->best)
		return;
	s->best = saving;
	s->worth = s->chunks;
	s->worth_fetch_ns = s->fetch_ns;
	s->worth_compute_ns = s->compute_ns;
}

static double rate_of(struct kvt_lower *b)
{
	uint64_t rate = atomic_load_explicit(&b->reads.rate, memory_order_relaxed);

	return rate != 0 ? (double)rate : UNKNOWN_RATE;
}

static void add_lower(struct kvt *k, struct sums *s, struct kvt_lower *b,
	const struct kvt_tier_known *known, double token_ns)
{
	double rate = rate_of(b);
	uint32_t tokens = known->tokens != 0 ? known->tokens : k->config.tokens_per_chunk;

	if ((s->touched & KVT_IN(b->id)) == 0) {
		s->touched |= KVT_IN(b->id);
		s->fetch_ns +=
			(double)atomic_load_explicit(&b->reads.queued, memory_order_relaxed) /
			rate * 1e9;
		if (b->reads.rate == 0 || kvt_meter_look_again(&b->reads, kvt_clock(k)))
			s->regardless = true;
	}
	s->chunks++;
	s->fetch_ns += (double)known->bytes / rate * 1e9 + OVERHEAD_NS;
	s->compute_ns += tokens * token_ns;
	settle(s);
}

static void mark(uint8_t *tiers, size_t first, size_t count, uint32_t tier)
{
	if (tiers != NULL)
		memset(&tiers[first], (int)tier, count);
}

void kvt_plan(struct kvt *k, const struct kvt_key *keys, size_t n, uint32_t tier_mask, bool locked,
	uint8_t *tiers, struct kvt_lookup *out)
{
	uint64_t rate = atomic_load_explicit(&k->prefill.tokens_per_second, memory_order_relaxed);
	double token_ns = rate != 0 ? 1e9 / (double)rate : 0;
	bool use_l1 = tier_mask == KVT_ALL_TIERS || (tier_mask & KVT_IN(KVT_TIER_L1)) != 0;
	struct sums s = {.regardless = rate == 0 || k->config.fetch_when_slower != 0};

	while (s.chunks < n) {
		size_t here = use_l1 ? kvt_l1_match(k->l1, &keys[s.chunks], n - s.chunks) : 0;
		struct kvt_tier_known known;
		struct kvt_lower *b;

		mark(tiers, s.chunks, here, KVT_TIER_L1);
		s.chunks += here;
		s.fetch_ns += (double)here * HOLD_NS;
		s.compute_ns += (double)here * k->config.tokens_per_chunk * token_ns;
		settle(&s);
		if (s.chunks == n)
			break;
		b = kvt_lower_holding(k, &keys[s.chunks], tier_mask, locked, &known);
		if (b == NULL)
			break;
		mark(tiers, s.chunks, 1, b->id);
		add_lower(k, &s, b, &known, token_ns);
	}
	mark(tiers, s.chunks, n - s.chunks, KVT_TIER_NONE);
	*out = (struct kvt_lookup){.hits = s.chunks,
		.worth = s.worth,
		.fetch_ns = (uint64_t)s.worth_fetch_ns,
		.recompute_ns = (uint64_t)s.worth_compute_ns};
}
