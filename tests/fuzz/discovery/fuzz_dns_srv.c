/*
 * fuzz_dns_srv.c - any bytes as an answer to a question for SRV records.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fleet/dns_srv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_dns_target *targets = NULL;
	uint32_t ttl_s = KVW_DNS_STAY;
	size_t count = 0;
	enum kvw_err err = kvw_dns_srv_read(data, size, &targets, &count, &ttl_s);

	require((err == KVW_OK) == (targets != NULL));
	require((err == KVW_OK) == (count > 0) && count <= KVW_DNS_MOST);
	for (size_t i = 0; i < count; i++) {
		require(targets[i].port != 0 && targets[i].host[0] != '\0');
		require(strlen(targets[i].host) < KVW_DNS_HOST);
		require(i == 0 || strcasecmp(targets[i - 1].host, targets[i].host) < 0 ||
			targets[i - 1].port < targets[i].port);
	}
	require(count == 0 || ttl_s <= INT32_MAX);
	free(targets);
	return 0;
}
