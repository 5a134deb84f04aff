/*
 * replay_pd.h - workers with roles: prompts that one worker prefills and another decodes.
 *
 * A request of two legs is booked on its decoder at once and runs on its prefiller first, as a
 * request for one token. Then the decoder gets it. Its engine takes blocks for the prompt before it
 * pulls, in its turn, and computes the last token when the transfer has ended. A transfer has a
 * fixed part, and its bytes share a link with those of the worker's other transfers, one after the
 * other, at either end. What the decoder has cached is not transferred. Beyond that:
 *
 *	lease      KV that was not begun to be pulled by then is gone: the decoder computes the prompt
 *	wrong      so does a decoder for a share of all parameters, without a word
 *
 * Not modelled: the memory of the prefiller that waiting KV takes, heartbeats that prolong a lease.
 */
#ifndef KVB_REPLAY_PD_H
#define KVB_REPLAY_PD_H

#include <stdbool.h>
#include <stdint.h>

/* The rule that splits a prompt: if the decoder lacks `threshold` tokens or more; below 0: if it
 * takes fewer predicted seconds. */
struct kvb_pd_rule {
	const char *name;
	int64_t threshold;
	/* also split if the decoder lacks this share of the prompt; 0: no such rule */
	double ratio;
	const char *source;
};

/* Ends with a NULL name. */
extern const struct kvb_pd_rule kvb_pd_rules[];
const struct kvb_pd_rule *kvb_pd_rule_find(const char *name);

/* The first `prefillers` workers only prefill, the next `decoders` decode, others do both. */
struct kvb_pd_options {
	uint32_t prefillers, decoders; /* 0, 0: workers have no roles, and nothing is split */
	/* 1: prefillers may have whole requests, too (pd.whole), where the rule compares prices;
	 * -1: as the configuration says */
	int whole;
	const struct kvb_pd_rule *rule; /* borrowed */
	double bytes_per_ns;            /* speed of a worker's link, each way */
	int64_t fixed_ns;               /* time of a transfer besides its bytes */
	int64_t lease_ns;               /* 0: it does not expire */
	/* share of transfers whose parameters decoders do not understand */
	double wrong_share;
};

/* Counts of the requests with two legs, by what happened to them. */
struct kvb_pd_counts {
	uint64_t split, pulled, expired, recomputed;
	double pulled_tokens; /* tokens that were transferred */
};

/* State of a fleet with roles; zeroed for a fleet without. */
struct kvb_pd {
	struct kvb_pd_counts counts;
	int64_t *in_ns, *out_ns; /* when each worker's link is free, by worker */
};

struct kvb_fleet;

static inline bool kvb_pd_on(const struct kvb_pd_options *pd)
{
	return pd->prefillers + pd->decoders > 0;
}

static inline bool kvb_pd_prefills(const struct kvb_pd_options *pd, uint32_t worker)
{
	return worker < pd->prefillers || worker >= pd->prefillers + pd->decoders;
}

static inline bool kvb_pd_decodes(const struct kvb_pd_options *pd, uint32_t worker)
{
	return worker >= pd->prefillers;
}

/* Prepares the state of a fleet whose engines exist. */
void kvb_pd_begin(struct kvb_fleet *fleet);
void kvb_pd_finish(struct kvb_fleet *fleet);

#endif
