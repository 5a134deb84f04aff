/*
 * sim_link.h - simulated links between a worker's tiers (sim_link.def), and the queue of transfers
 * on a link.
 *
 * A channel carries one transfer after another: a transfer that is requested while it is busy
 * begins when it becomes free. So the end of a transfer is known when it is requested, from
 * simulated times alone, and the same requests at the same simulated moments give the same ends
 * whatever the machine does.
 */
#ifndef KVB_SIM_LINK_H
#define KVB_SIM_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum kvb_link_kind { KVB_LINK_GPU, KVB_LINK_NVME, KVB_LINK_L2, KVB_LINK_KINDS };

/* A link, as a row of the table; times are simulated. */
struct kvb_link {
	const char *name;
	enum kvb_link_kind kind;
	double bytes_per_s;
	int64_t latency_ns; /* simulated time before the first byte */
	const char *source; /* the source of the figures */
};

/* Returns a static row; NULL if there is none of that name. */
const struct kvb_link *kvb_link_find(const char *name);
const struct kvb_link *kvb_link_default(enum kvb_link_kind kind);
const struct kvb_link *kvb_link_instant(
	enum kvb_link_kind kind); /* a link that takes no time; not in the table */
void kvb_link_list(FILE *out);

/* Returns how long so many bytes take, without the latency. */
int64_t kvb_link_ns(const struct kvb_link *link, uint64_t bytes);

/* Parses "KIND=BYTES_PER_S" for the kinds gpu, nvme and l2: the default link of that kind with
 * another speed. Fills *out and returns true; returns false if the text is not of this form. */
bool kvb_link_parse_own(const char *text, struct kvb_link *out);

/* A link in use. All zeroes at first. */
struct kvb_channel {
	int64_t free_ns; /* simulated time when the transfers requested so far have ended */
	uint64_t bytes;  /* bytes carried, in the model's full size */
	int64_t busy_ns;
};

/* Returns the end of a transfer of so many bytes that could begin at from_ns. Its latency overlaps
 * with other transfers, its bytes do not. */
int64_t kvb_channel_carry(
	struct kvb_channel *channel, const struct kvb_link *link, int64_t from_ns, uint64_t bytes);

#endif
