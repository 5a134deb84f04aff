/* commands.c - what a line on standard input may say. */
#include <stdlib.h>
#include <string.h>

#include "drive.h"

#define MILLISECOND UINT64_C(1000000)

static bool failed(char *error, const char *what, enum kvt_status status)
{
	snprintf(error, 256, "%s: %s", what, kvt_status_text(status));
	return false;
}

static uint64_t number(const char *word)
{
	return strtoull(word, NULL, 0);
}

static uint32_t chain_of(char **words, struct kvt_key *keys)
{
	const uint64_t seed = number(words[1]);
	const uint64_t asked = number(words[2]);
	const uint32_t n = asked < DRIVE_CHAIN ? (uint32_t)asked : DRIVE_CHAIN;

	for (uint32_t i = 0; i < n; i++)
		drive_key(seed, i, &keys[i]);
	return n;
}

/* --- chains of chunks, whose bytes are a function of their keys --- */

/* put SEED N BYTES */
static bool put(struct drive *d, char **words, size_t count, char *error)
{
	struct kvt_key keys[DRIVE_CHAIN];
	const uint32_t n = chain_of(words, keys);
	const uint64_t bytes = number(words[3]);
	void *chunk = malloc(bytes);
	uint32_t put = 0, there = 0, full = 0;
	enum kvt_status status = chunk == NULL ? KVT_ENOMEM : KVT_OK;

	(void)count;
	for (uint32_t i = 0; i < n && status == KVT_OK; i++) {
		struct kvt_item item = {.size = sizeof(item),
			.key = keys[i],
			.parent = i > 0 ? &keys[i - 1] : NULL,
			.bytes = bytes};

		drive_tenant(number(words[1]), &item.tenant);
		drive_fill(&keys[i], 0, chunk, bytes);
		status = kvt_put(d->k, &item, chunk);
		put += status == KVT_OK;
		there += status == KVT_EXISTS;
		if (status == KVT_FULL || status == KVT_BUSY || (status == KVT_MISS && i > 0)) {
			full++; /* KVT_MISS: the chunk before it in the chain found no room */
			status = KVT_OK;
		}
		if (status == KVT_EXISTS)
			status = KVT_OK;
	}
	free(chunk);
	if (status != KVT_OK)
		return failed(error, "put", status);
	printf(",\"put\":%u,\"there\":%u,\"full\":%u", put, there, full);
	return true;
}

/* get SEED N BYTES LIMIT_MS */
static bool get(struct drive *d, char **words, size_t count, char *error)
{
	struct kvt_key keys[DRIVE_CHAIN];
	const uint32_t n = chain_of(words, keys);
	const uint64_t bytes = number(words[3]);
	const int64_t begun = drive_now();
	struct kvt_lease *lease = NULL;
	const enum kvt_status status =
		kvt_get(d->k, keys, n, number(words[4]) * MILLISECOND, &lease);
	const int64_t took = drive_now() - begun;
	size_t got = 0, wrong = 0, tiers[KVT_TIER_COUNT] = {0};

	(void)count;
	if (status != KVT_OK && status != KVT_MISS)
		return failed(error, "get", status);
	if (status == KVT_OK) {
		got = lease->count;
		for (size_t i = 0; i < got; i++) {
			wrong += drive_check(lease, i, &keys[i], bytes) != DRIVE_RIGHT;
			if (lease->views[i].tier < KVT_TIER_COUNT)
				tiers[lease->views[i].tier]++;
		}
		kvt_release(d->k, lease);
	}
	printf(",\"got\":%zu,\"wrong\":%zu,\"tiers\":[%zu,%zu,%zu],\"ns\":%lld", got, wrong,
		tiers[0], tiers[1], tiers[2], (long long)took);
	return true;
}

static bool told(enum kvt_status status, const char *what, const struct kvt_lookup *lookup,
	int64_t took, char *error)
{
	if (status != KVT_OK && status != KVT_MISS)
		return failed(error, what, status);
	printf(",\"hits\":%zu,\"worth\":%zu,\"ns\":%lld", lookup->hits, lookup->worth,
		(long long)took);
	return true;
}

/* find SEED N LIMIT_MS */
static bool find(struct drive *d, char **words, size_t count, char *error)
{
	struct kvt_key keys[DRIVE_CHAIN];
	const uint32_t n = chain_of(words, keys);
	struct kvt_lookup lookup = {0};
	const int64_t begun = drive_now();
	const enum kvt_status status = kvt_find(
		d->k, keys, n, KVT_ALL_TIERS, number(words[3]) * MILLISECOND, NULL, &lookup);

	(void)count;
	return told(status, "find", &lookup, drive_now() - begun, error);
}

/* lookup SEED N */
static bool lookup(struct drive *d, char **words, size_t count, char *error)
{
	struct kvt_key keys[DRIVE_CHAIN];
	const uint32_t n = chain_of(words, keys);
	struct kvt_lookup lookup = {0};
	const int64_t begun = drive_now();
	const enum kvt_status status = kvt_lookup(d->k, keys, n, KVT_ALL_TIERS, NULL, &lookup);

	(void)count;
	return told(status, "lookup", &lookup, drive_now() - begun, error);
}

/* erase SEED N LIMIT_MS */
static bool erase(struct drive *d, char **words, size_t count, char *error)
{
	struct kvt_key keys[DRIVE_CHAIN];
	const uint32_t n = chain_of(words, keys);
	size_t erased = 0;
	const enum kvt_status status =
		kvt_erase(d->k, keys, n, number(words[3]) * MILLISECOND, &erased);

	(void)count;
	if (status != KVT_OK && status != KVT_MISS)
		return failed(error, "erase", status);
	printf(",\"erased\":%zu,\"durable\":%s", erased, status == KVT_OK ? "true" : "false");
	return true;
}

/* erase_tenant SEED LIMIT_MS: erases the tenant of chain SEED */
static bool erase_tenant(struct drive *d, char **words, size_t count, char *error)
{
	struct kvt_tenant tenant;
	enum kvt_status status;

	(void)count;
	drive_tenant(number(words[1]), &tenant);
	status = kvt_erase_tenant(d->k, &tenant, number(words[2]) * MILLISECOND, NULL);
	if (status != KVT_OK && status != KVT_EIO)
		return failed(error, "erase_tenant", status);
	printf(",\"erased\":%s", status == KVT_OK ? "true" : "false");
	return true;
}

/* --- the cache as a whole --- */

/* drain LIMIT_MS */
static bool drain(struct drive *d, char **words, size_t count, char *error)
{
	const enum kvt_status status = kvt_drain(d->k, number(words[1]) * MILLISECOND);

	(void)count;
	if (status != KVT_OK && status != KVT_MISS)
		return failed(error, "drain", status);
	printf(",\"drained\":%s", status == KVT_OK ? "true" : "false");
	return true;
}

/* reopen: closes the cache and opens it again, with empty memory */
static bool reopen(struct drive *d, char **words, size_t count, char *error)
{
	enum kvt_status status;

	(void)words;
	(void)count;
	kvt_close(d->k);
	d->k = NULL;
	status = kvt_open(&d->config, &d->k);
	return status == KVT_OK || failed(error, "open", status);
}

/* reset */
static bool reset(struct drive *d, char **words, size_t count, char *error)
{
	const enum kvt_status status = kvt_reset(d->k);

	(void)words;
	(void)count;
	return status == KVT_OK || failed(error, "reset", status);
}

static void print_tier(const char *name, const struct kvt_tier_stats *t)
{
	printf(",\"%s\":{\"state\":%u,\"mode\":\"%s\",\"chunks\":%llu,\"used\":%llu,"
	       "\"hits\":%llu,\"misses\":%llu,\"loads\":%llu,\"stores\":%llu,\"corrupt\":%llu,"
	       "\"io_errors\":%llu,\"leased\":%llu,\"trips\":%llu}",
		name, t->state, t->mode, (unsigned long long)t->chunks, (unsigned long long)t->used,
		(unsigned long long)t->hits, (unsigned long long)t->misses,
		(unsigned long long)t->loads, (unsigned long long)t->stores,
		(unsigned long long)t->corrupt, (unsigned long long)t->io_errors,
		(unsigned long long)t->leased, (unsigned long long)t->breaker_trips);
}

/* stats */
static bool stats(struct drive *d, char **words, size_t count, char *error)
{
	struct kvt_stats s = {.size = sizeof(s)};
	const enum kvt_status status = kvt_stats(d->k, &s);

	(void)words;
	(void)count;
	if (status != KVT_OK)
		return failed(error, "stats", status);
	print_tier("l1", &s.tiers[KVT_TIER_L1]);
	print_tier("nvme", &s.tiers[KVT_TIER_NVME]);
	print_tier("l2", &s.tiers[KVT_TIER_L2]);
	return true;
}

/* metrics FILE */
static bool metrics(struct drive *d, char **words, size_t count, char *error)
{
	FILE *file = fopen(words[1], "w");
	char *text = NULL;
	enum kvt_status status = file == NULL ? KVT_EIO : kvt_metrics(d->k, &text);

	(void)count;
	if (status == KVT_OK && fputs(text, file) < 0)
		status = KVT_EIO;
	if (file != NULL && fclose(file) != 0)
		status = KVT_EIO;
	kvt_text_free(text);
	return status == KVT_OK || failed(error, "metrics", status);
}

const struct drive_command drive_commands[] = {
	{"put", 3, 3, put},
	{"get", 4, 4, get},
	{"find", 3, 3, find},
	{"lookup", 2, 2, lookup},
	{"erase", 3, 3, erase},
	{"erase_tenant", 2, 2, erase_tenant},
	{"drain", 1, 1, drain},
	{"reopen", 0, 0, reopen},
	{"reset", 0, 0, reset},
	{"stats", 0, 0, stats},
	{"metrics", 1, 1, metrics},
	{"run", 8, 9, drive_run},
	{NULL, 0, 0, NULL},
};
