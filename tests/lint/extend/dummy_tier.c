/*
 * dummy_tier.c - becomes cache/tiers/dummy.c: a few chunks in memory, for `l2.url: dummy://HOST`.
 *
 * Requests wait in a list until the tier's thread steps. The tier forgets everything when it ends.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chunk/l2_url.h"
#include "tiers/tiers.h"

#define CHUNKS 64
#define NAP_NS 1000000

struct chunk {
	bool used;
	struct kvt_key key;
	struct kvt_tenant tenant;
	uint32_t tokens;
	uint64_t bytes;
	struct kvt_checksum checksum;
	unsigned char *data;
};

struct dummy {
	struct kvt_tier base;
	pthread_mutex_t lock; /* over all below */
	struct kvt_tier_request *oldest, *newest;
	struct chunk chunks[CHUNKS];
};

static enum kvt_status dummy_create(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	const char *text = options->config->l2_url;
	struct kvt_l2_url url;
	struct dummy *t;

	(void)why;
	if (text == NULL || kvt_l2_url_parse(text, &url) != NULL ||
		url.kind != KVT_L2_TIER_dummy)
		return KVT_MISS;
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return KVT_ENOMEM;
	t->base.ops = &kvt_dummy_ops;
	(void)pthread_mutex_init(&t->lock, NULL);
	*out = &t->base;
	return KVT_OK;
}

static struct chunk *find(struct dummy *t, const struct kvt_key *key)
{
	for (size_t i = 0; i < CHUNKS; i++)
		if (t->chunks[i].used && memcmp(&t->chunks[i].key, key, sizeof(*key)) == 0)
			return &t->chunks[i];
	return NULL;
}

static size_t dummy_match(struct kvt_tier *base, const struct kvt_key *keys, size_t n)
{
	struct dummy *t = (struct dummy *)base;
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	while (count < n && find(t, &keys[count]) != NULL)
		count++;
	pthread_mutex_unlock(&t->lock);
	return count;
}

static enum kvt_status dummy_known(
	struct kvt_tier *base, const struct kvt_key *key, struct kvt_tier_known *out)
{
	struct dummy *t = (struct dummy *)base;
	const struct chunk *chunk;

	pthread_mutex_lock(&t->lock);
	chunk = find(t, key);
	if (chunk != NULL)
		*out = (struct kvt_tier_known){.bytes = chunk->bytes,
			.checksum = chunk->checksum,
			.tokens = chunk->tokens,
			.tenant = chunk->tenant};
	pthread_mutex_unlock(&t->lock);
	return chunk != NULL ? KVT_OK : KVT_MISS;
}

static void dummy_submit(struct kvt_tier *base, struct kvt_tier_request *request)
{
	struct dummy *t = (struct dummy *)base;

	pthread_mutex_lock(&t->lock);
	request->next = NULL;
	*(t->oldest != NULL ? &t->newest->next : &t->oldest) = request;
	t->newest = request;
	pthread_mutex_unlock(&t->lock);
}

static void drop(struct chunk *chunk)
{
	free(chunk->data);
	*chunk = (struct chunk){.used = false};
}

static uint32_t do_read(struct dummy *t, struct kvt_tier_request *r)
{
	struct chunk *chunk = find(t, r->keys);
	uint64_t at = 0;

	if (chunk == NULL || chunk->bytes != r->bytes)
		return KVT_MISS;
	for (uint32_t i = 0; i < r->segment_count; i++) {
		memcpy(r->segments[i].base, chunk->data + at, r->segments[i].bytes);
		at += r->segments[i].bytes;
	}
	kvt_checksum_segments(r->segments, r->segment_count, r->bytes, &r->checksum);
	return kvt_checksum_equal(&r->checksum, &chunk->checksum) ? KVT_OK : KVT_ECORRUPT;
}

static uint32_t do_write(struct dummy *t, struct kvt_tier_request *r)
{
	size_t slot = 0;
	uint64_t at = 0;
	unsigned char *data;

	if (find(t, r->keys) != NULL)
		return KVT_OK;
	while (slot < CHUNKS && t->chunks[slot].used)
		slot++;
	if (slot == CHUNKS)
		return KVT_FULL;
	data = malloc(r->bytes);
	if (data == NULL)
		return KVT_ENOMEM;
	for (uint32_t i = 0; i < r->segment_count; i++) {
		memcpy(data + at, r->segments[i].base, r->segments[i].bytes);
		at += r->segments[i].bytes;
	}
	t->chunks[slot] = (struct chunk){true, *r->keys, r->item->tenant, r->item->tokens, r->bytes,
		r->checksum, data};
	return KVT_OK;
}

static uint32_t answer(struct dummy *t, struct kvt_tier_request *r)
{
	switch (r->verb) {
	case KVT_TIER_READ:
		return do_read(t, r);
	case KVT_TIER_WRITE:
		return do_write(t, r);
	case KVT_TIER_ERASE:
		for (size_t i = 0; i < r->key_count; i++) {
			struct chunk *chunk = find(t, &r->keys[i]);

			if (chunk != NULL)
				drop(chunk);
		}
		return KVT_OK;
	case KVT_TIER_FLUSH:
		return KVT_OK;
	case KVT_TIER_PROBE:
		break;
	}
	return KVT_ENOTSUP;
}

static size_t dummy_step(struct kvt_tier *base, int64_t wait_ns, int64_t *next_ns)
{
	struct dummy *t = (struct dummy *)base;
	struct kvt_tier_request *request;
	size_t count = 0;

	*next_ns = INT64_MAX;
	for (;;) {
		pthread_mutex_lock(&t->lock);
		request = t->oldest;
		if (request != NULL) {
			t->oldest = request->next;
			request->status = answer(t, request);
		}
		pthread_mutex_unlock(&t->lock);
		if (request == NULL)
			break;
		request->done(request);
		count++;
	}
	if (count == 0 && wait_ns > 0)
		(void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	return count;
}

static size_t dummy_pin(struct kvt_tier *base, const struct kvt_key *keys, size_t n, bool pin)
{
	(void)pin; /* nothing is evicted here */
	return dummy_match(base, keys, n);
}

static enum kvt_status erase(
	struct kvt_tier *base, const struct kvt_tenant *tenant, size_t *erased)
{
	struct dummy *t = (struct dummy *)base;

	*erased = 0;
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < CHUNKS; i++) {
		struct chunk *chunk = &t->chunks[i];

		if (!chunk->used || (tenant != NULL &&
					    memcmp(&chunk->tenant, tenant, sizeof(*tenant)) != 0))
			continue;
		drop(chunk);
		(*erased)++;
	}
	pthread_mutex_unlock(&t->lock);
	return KVT_OK;
}

static enum kvt_status dummy_erase_all(struct kvt_tier *base, size_t *erased)
{
	return erase(base, NULL, erased);
}

static void dummy_stats(struct kvt_tier *base, struct kvt_tier_stats *out)
{
	struct dummy *t = (struct dummy *)base;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < CHUNKS; i++)
		out->chunks += t->chunks[i].used;
	pthread_mutex_unlock(&t->lock);
	snprintf(out->mode, sizeof(out->mode), "dummy");
}

static void dummy_wake(struct kvt_tier *base)
{
	(void)base; /* it never sleeps for long */
}

static void dummy_destroy(struct kvt_tier *base)
{
	struct dummy *t = (struct dummy *)base;
	size_t erased;

	if (t == NULL)
		return;
	(void)erase(base, NULL, &erased);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

const struct kvt_tier_ops kvt_dummy_ops = {
	.name = "dummy",
	.id = KVT_TIER_L2,
	.create = dummy_create,
	.match = dummy_match,
	.known = dummy_known,
	.submit = dummy_submit,
	.pin = dummy_pin,
	.erase_tenant = erase,
	.erase_all = dummy_erase_all,
	.stats = dummy_stats,
	.wake = dummy_wake,
	.step = dummy_step,
	.destroy = dummy_destroy,
};
