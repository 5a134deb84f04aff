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

/* When a prompt is split: from `threshold` tokens on that the decoder lacks; below 0: by predicted
 * seconds. */
struct kvb_pd_rule {
	const char *name;
	int64_t threshold;
	double ratio; /* or if the decoder lacks so much of the prompt; 0: this does not count */
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
	double bytes_per_ns;            /* of a worker's link, each way */
	int64_t fixed_ns;               /* of a transfer */
	int64_t lease_ns;               /* 0: it does not expire */
	double wrong_share;             /* of parameters that decoders do not understand */
};

/* What became of the requests of two legs. */
struct kvb_pd_counts {
	uint64_t split, pulled, expired, recomputed;
	double pulled_tokens; /* that were transferred */
};

/* A pull under way. */
struct kvb_pd_pull {
	int64_t end_ns;
	uint32_t job;
};

/* Of a fleet; zeroed without roles. */
struct kvb_pd {
	struct kvb_pd_counts counts;
	struct kvb_pd_pull *pulls; /* owned; in no order */
	uint32_t pull_count, pull_room;
	int64_t *in_ns, *out_ns; /* by worker: its link is free from then on */
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

/* Of a fleet whose engines exist. */
void kvb_pd_begin(struct kvb_fleet *fleet);
void kvb_pd_finish(struct kvb_fleet *fleet);
/* When the next pull ends; INT64_MAX: none is under way. */
int64_t kvb_pd_next_ns(const struct kvb_fleet *fleet);
/* Pulls that end now. */
void kvb_pd_loaded(struct kvb_fleet *fleet, int64_t now_ns);

#endif
