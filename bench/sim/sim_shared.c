/*
 * sim_shared.c - see sim_shared.h.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_shared.h"
#include "bench/sim/sim_worker.h"

/* Makes the file path of the block behind `before` others; the engine need not have the sequence
 * yet. */
static void path_of(const struct kvb_exchange *x, const struct kvb_seq *seq, uint32_t before,
	char *out, size_t size)
{
	size_t tokens = (size_t)(before + 1) * x->worker->options->block_size;
	uint64_t name =
		XXH3_64bits_withSeed(seq->tokens, tokens * sizeof(seq->tokens[0]), x->salt);

	snprintf(out, size, "%s/%016" PRIx64, x->worker->options->nixl.folder, name);
}

static uint32_t blocks_of(const struct kvb_exchange *x, const struct kvb_seq *seq)
{
	return seq->prompt_len / x->worker->options->block_size;
}

void kvb_shared_find(struct kvb_exchange *x)
{
	char path[512];

	for (uint32_t c = 0; c < x->choice_count; c++) {
		struct kvb_seq *seq = x->choices[c].seq;
		uint32_t found = 0;

		for (; found < blocks_of(x, seq); found++) {
			path_of(x, seq, found, path, sizeof(path));
			if (access(path, F_OK) != 0)
				break;
		}
		seq->pulled = found * x->worker->options->block_size;
		if (seq->pulled >= seq->prompt_len)
			seq->pulled = seq->prompt_len - 1;
		x->worker->nixl.counts.pulled += found > 0;
	}
}

void kvb_shared_store(struct kvb_exchange *x)
{
	const struct kvb_nixl_options *o = &x->worker->options->nixl;
	char path[512];

	for (uint32_t c = 0; o->on && o->kind == KVB_TRANSFER_SHARED && c < x->choice_count; c++) {
		const struct kvb_seq *seq = x->choices[c].seq;

		for (uint32_t i = 0; i < blocks_of(x, seq); i++) {
			int fd;

			path_of(x, seq, i, path, sizeof(path));
			fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
			if (fd >= 0)
				close(fd);
		}
		x->worker->nixl.counts.held++;
	}
}
