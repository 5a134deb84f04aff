/*
 * fuzz_load.c - whatever lies in Redis in place of a peer's load: no crash, nothing beyond the limits, and what is read
 * is written as it was. The check over a message is put right first, or nothing would get past it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "sharing/load_codec.h"

static struct kvw_load_news news, again;
static char text[KVW_LOAD_BYTES], copy[KVW_LOAD_BYTES];

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_limits(const struct kvw_load_news *read)
{
	require(read->count <= KVW_MAX_WORKERS && read->origin != 0 && read->sequence != 0);
	for (size_t i = 0; i < read->count; i++) {
		const struct kvw_load_part *part = &read->entries[i].part;

		require(part->queue_ns >= 0 && part->queue_ns <= KVW_LOAD_MOST_QUEUE_NS);
		require(part->waiting_ns >= 0 && part->waiting_ns <= KVW_LOAD_MOST_QUEUE_NS);
		require(part->inflight <= KVW_LOAD_MOST_INFLIGHT && part->context <= KVW_LOAD_MOST_CONTEXT);
		require(part->unanswered <= part->sequences);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)!kvw_load_read((const char *)data, size, &news);
	if (size < 4 || size > sizeof(text))
		return 0;
	memcpy(text, data, size);
	for (size_t i = 0, check = (uint32_t)XXH3_64bits(text, size - 4); i < 4; i++)
		text[size - 4 + i] = (char)(check >> (8 * i));
	if (kvw_load_read(text, size, &news) != KVW_OK)
		return 0;
	check_limits(&news);
	require(kvw_load_read(copy, kvw_load_write(&news, copy), &again) == KVW_OK);
	require(again.count == news.count && again.sequence == news.sequence &&
		memcmp(again.entries, news.entries, news.count * sizeof(news.entries[0])) == 0);
	return 0;
}
