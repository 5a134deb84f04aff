/*
 * fuzz_kvtierd.c - what a tiered-storage daemon may say: heads, bodies, leases.
 *
 * The first byte says into what pieces the rest is cut. However it is cut, the answer is the same;
 * and a lease that is accepted has pieces that can be, whose sum is right.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/kvtierd/kvtierd_answer.h"

static void must(bool good)
{
	if (!good)
		abort();
}

static void check_lease(const char *text, size_t len)
{
	struct kvtierd_lease lease;
	enum kvt_status status = kvtierd_lease_parse(text, len, &lease);
	uint64_t sum = 0;

	must(status == KVT_OK || lease.pieces == NULL);
	must(strlen(lease.id) < KVTIERD_ID_BYTES && strchr(lease.id, '/') == NULL &&
		strpbrk(lease.id, " \r\n?#%") == NULL);
	if (status == KVT_OK) {
		must(lease.count > 0 && lease.count <= KVTIERD_MAX_PIECES && lease.id[0] != '\0');
		for (uint32_t i = 0; i < lease.count; i++) {
			must(lease.pieces[i].bytes > 0);
			sum += lease.pieces[i].bytes;
		}
		must(sum == lease.bytes);
		if (kvtierd_lease_fits(&lease, 1 << 20))
			for (uint32_t i = 0; i < lease.count; i++)
				must(lease.pieces[i].offset + lease.pieces[i].bytes <= 1 << 20);
	}
	kvtierd_lease_finish(&lease);
}

/* Feeds in pieces of `piece` bytes; returns what is used when it ends. */
static enum kvt_status feed(
	struct kvtierd_reader *r, const char *data, size_t len, size_t piece, size_t *total)
{
	enum kvt_status status = KVT_MISS;

	*total = 0;
	kvtierd_reader_begin(r);
	while (status == KVT_MISS && *total < len) {
		size_t n = len - *total < piece ? len - *total : piece, used = 0;

		status = kvtierd_reader_feed(r, data + *total, n, &used);
		must(used <= n && (status != KVT_MISS || used == n));
		*total += used;
	}
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvtierd_reader whole, cut;
	enum kvt_status a, b;
	size_t used_a, used_b;

	if (size < 1)
		return 0;
	must(kvtierd_reader_init(&whole) == KVT_OK && kvtierd_reader_init(&cut) == KVT_OK);
	a = feed(&whole, (const char *)data + 1, size - 1, SIZE_MAX, &used_a);
	b = feed(&cut, (const char *)data + 1, size - 1, 1u + data[0] % 64, &used_b);
	must(a == b);
	if (a == KVT_OK) {
		must(used_a == used_b && whole.status == cut.status && whole.status >= 200);
		must(whole.keep_alive == cut.keep_alive && whole.json == cut.json);
		must(whole.text_len == cut.text_len && whole.text_len <= KVTIERD_BODY_ROOM &&
			memcmp(whole.text, cut.text, whole.text_len) == 0);
		check_lease(whole.text, whole.text_len);
	} else if (a == KVT_MISS) {
		must(kvtierd_reader_close(&whole) == kvtierd_reader_close(&cut));
	}
	check_lease((const char *)data + 1, size - 1);
	kvtierd_reader_finish(&whole);
	kvtierd_reader_finish(&cut);
	return 0;
}
