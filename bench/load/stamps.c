/*
 * stamps.c - times written into a stream of bytes and found again on the other side. A stamp cut by
 * the end of a read is completed in a small window.
 */
#include "bench/load/stamps.h"

#include <string.h>

static int64_t digits(const char *at)
{
	int64_t value = 0;

	for (size_t i = 0; i < 20; i++)
		value = value * 10 + (at[i] - '0');
	return value;
}

/* Reports the whole stamps within data; returns the offset behind the last one. */
static size_t scan(const char *data, size_t len, void (*found)(void *arg, int64_t ns), void *arg)
{
	const size_t key = sizeof(KVB_STAMP_KEY) - 1;
	size_t from = 0;

	while (len - from >= KVB_STAMP_LEN) {
		const char *at = memmem(data + from, len - from, KVB_STAMP_KEY, key);

		if (at == NULL || (size_t)(data + len - at) < KVB_STAMP_LEN)
			break;
		found(arg, digits(at + key));
		from = (size_t)(at - data) + KVB_STAMP_LEN;
	}
	return from;
}

void kvb_stamps_read(struct kvb_stamp_reader *reader, const char *data, size_t len,
	void (*found)(void *arg, int64_t ns), void *arg)
{
	char window[2 * KVB_STAMP_LEN];
	size_t had = reader->tail_len;
	size_t more = len < KVB_STAMP_LEN - 1 ? len : KVB_STAMP_LEN - 1;
	size_t used, keep;

	if (had > 0) {
		memcpy(window, reader->tail, had);
		memcpy(window + had, data, more);
		used = scan(window, had + more, found, arg);
		if (len < KVB_STAMP_LEN) { /* the window holds all of the bytes */
			keep = had + more - used;
			keep = keep < KVB_STAMP_LEN - 1 ? keep : KVB_STAMP_LEN - 1;
			memcpy(reader->tail, window + had + more - keep, keep);
			reader->tail_len = keep;
			return;
		}
		if (used > had) {
			data += used - had;
			len -= used - had;
		}
	}
	used = scan(data, len, found, arg);
	keep = len - used < KVB_STAMP_LEN - 1 ? len - used : KVB_STAMP_LEN - 1;
	memcpy(reader->tail, data + len - keep, keep);
	reader->tail_len = keep;
}
