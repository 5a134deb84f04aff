/*
 * sim_link.h - modelled ways between a worker's tiers (sim_link.def), and how transfers queue on one.
 *
 * A channel carries one transfer after another: what is asked for while it is busy begins when it
 * becomes free. So the end of a transfer is known when it is asked for, from simulated times alone,
 * and the same requests at the same simulated moments give the same ends whatever the machine does.
 */
#ifndef KVB_SIM_LINK_H
#define KVB_SIM_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum kvb_link_kind { KVB_LINK_GPU, KVB_LINK_NVME, KVB_LINK_L2, KVB_LINK_KINDS };

/* One row of the table. Simulated time. */
struct kvb_link {
	const char *name;
	enum kvb_link_kind kind;
	double bytes_per_s;
	int64_t latency_ns; /* before the first byte */
	const char *source; /* where the figures come from */
};

/* Static; NULL if there is none of that name. */
const struct kvb_link *kvb_link_find(const char *name);
const struct kvb_link *kvb_link_default(enum kvb_link_kind kind);
const struct kvb_link *kvb_link_instant(
	enum kvb_link_kind kind); /* takes no time; not in the table */
void kvb_link_list(FILE *out);

/* How long so many bytes take, without the latency. */
int64_t kvb_link_ns(const struct kvb_link *link, uint64_t bytes);

/* The default of its kind at another speed: "KIND=BYTES_PER_S", kinds gpu, nvme and l2. Fills *out and
 * returns true; false if the text is not so. */
bool kvb_link_parse_own(const char *text, struct kvb_link *out);

/* One way at work. Zero at first. */
struct kvb_channel {
	int64_t free_ns; /* simulated; when what was asked for so far is through */
	uint64_t bytes;  /* carried, of the model's size */
	int64_t busy_ns;
};

/* End of a transfer of so many bytes that could begin at from_ns. Its latency overlaps with other
 * transfers, its bytes do not. */
int64_t kvb_channel_carry(
	struct kvb_channel *channel, const struct kvb_link *link, int64_t from_ns, uint64_t bytes);

#endif
