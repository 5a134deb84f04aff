/*
 * sim_link.c - the table of modelled ways, and transfers that queue.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_link.h"

static const struct kvb_link links[] = {
#define KVB_LINK(name, kind, rate, latency, source) {#name, KVB_LINK_##kind, rate, latency, source},
#include "bench/sim/sim_link.def"
#undef KVB_LINK
};

const struct kvb_link *kvb_link_find(const char *name)
{
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (strcmp(links[i].name, name) == 0)
			return &links[i];
	return NULL;
}

const struct kvb_link *kvb_link_default(enum kvb_link_kind kind)
{
	size_t i = 0;

	while (links[i].kind != kind)
		i++;
	return &links[i];
}

const struct kvb_link *kvb_link_instant(enum kvb_link_kind kind)
{
	static const struct kvb_link instant[KVB_LINK_KINDS] = {
		{"instant", KVB_LINK_GPU, HUGE_VAL, 0, "no simulated time"},
		{"instant", KVB_LINK_NVME, HUGE_VAL, 0, "no simulated time"},
		{"instant", KVB_LINK_L2, HUGE_VAL, 0, "no simulated time"}};

	return &instant[kind];
}

bool kvb_link_parse_own(const char *text, struct kvb_link *out)
{
	static const char *const names[KVB_LINK_KINDS] = {"gpu=", "nvme=", "l2="};

	for (int kind = 0; kind < KVB_LINK_KINDS; kind++) {
		size_t len = strlen(names[kind]);
		char *end;

		if (strncmp(text, names[kind], len) != 0)
			continue;
		*out = *kvb_link_default((enum kvb_link_kind)kind);
		out->name = "as said";
		out->source = "the command line";
		out->bytes_per_s = strtod(text + len, &end);
		return end != text + len && *end == '\0' && out->bytes_per_s >= 1 &&
		       isfinite(out->bytes_per_s);
	}
	return false;
}

void kvb_link_list(FILE *out)
{
	static const char *const kinds[KVB_LINK_KINDS] = {
		"L1 to GPU", "NVMe to L1", "shared tier to L1"};

	fprintf(out,
		"Modelled ways between tiers; none was measured here. The first of each kind is "
		"the "
		"default,\nbut for a daemon's shared memory it is shm.\n\n%-17s %-18s %8s %10s\n",
		"link", "from, to", "GB/s", "latency us");
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		fprintf(out, "%-17s %-18s %8.2f %10.0f\n", links[i].name, kinds[links[i].kind],
			links[i].bytes_per_s / 1e9, (double)links[i].latency_ns / 1e3);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		fprintf(out, "\n%s:\n    %s\n", links[i].name, links[i].source);
}

int64_t kvb_link_ns(const struct kvb_link *link, uint64_t bytes)
{
	return (int64_t)((double)bytes * 1e9 / link->bytes_per_s + 0.5);
}

int64_t kvb_channel_carry(
	struct kvb_channel *channel, const struct kvb_link *link, int64_t from_ns, uint64_t bytes)
{
	int64_t begin_ns = from_ns + link->latency_ns;
	int64_t length_ns = kvb_link_ns(link, bytes);

	if (begin_ns < channel->free_ns)
		begin_ns = channel->free_ns;
	channel->free_ns = begin_ns + length_ns;
	channel->bytes += bytes;
	channel->busy_ns += length_ns;
	return channel->free_ns;
}
