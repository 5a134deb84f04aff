/*
 * expected.c - keeps slots for workers of a former process of kvway; expected.h says why.
 *
 * The lowest free slot is taken, so that tables indexed by slots stay dense.
 */
#include "fleet/expected.h"

#include <stdlib.h>
#include <string.h>

#include "fleet/fleet_internal.h"

struct kvw_expected {
	char *url; /* owned, without trailing slashes */
	double started_s;
	uint32_t slot;
	struct kvw_expected *next;
};

static size_t bare_len(const char *url)
{
	size_t len = strlen(url);

	while (len > 0 && url[len - 1] == '/')
		len--;
	return len;
}

static bool same_url(const char *a, const char *b)
{
	size_t len = bare_len(a);

	return len == bare_len(b) && memcmp(a, b, len) == 0;
}

static struct kvw_worker *find_live(const struct kvw_fleet *fleet, const char *url)
{
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker != NULL && same_url(worker->url, url))
			return worker;
	}
	return NULL;
}

static bool has_slot(const struct fleet *self, uint32_t slot)
{
	for (const struct kvw_expected *e = self->expected; e != NULL; e = e->next)
		if (e->slot == slot)
			return true;
	return false;
}

static void free_expected(struct kvw_expected *expected)
{
	free(expected->url);
	free(expected);
}

static struct kvw_worker *take_expected(struct fleet *self, const char *url, double *started_s)
{
	for (struct kvw_expected **link = &self->expected; *link != NULL; link = &(*link)->next) {
		struct kvw_expected *expected = *link;
		struct kvw_worker *worker = self->base.workers[expected->slot];

		if (!same_url(expected->url, url))
			continue;
		*started_s = expected->started_s;
		*link = expected->next;
		free_expected(expected);
		return worker;
	}
	return NULL;
}

/* Takes the lowest slot that is free and not reserved. */
static enum kvw_err take_free(struct kvw_fleet *fleet, struct kvw_worker **out)
{
	size_t count = fleet->count;
	enum kvw_err err;

	for (size_t i = 0; i < count; i++) {
		if (kvw_worker_life(fleet->workers[i]) != KVW_WORKER_FREE ||
			has_slot((struct fleet *)fleet, (uint32_t)i))
			continue;
		*out = fleet->workers[i];
		return KVW_OK;
	}
	if (count == KVW_MAX_WORKERS)
		return KVW_ELIMIT;
	err = kvw_worker_create((uint32_t)count, &fleet->changes, out);
	if (err != KVW_OK)
		return err;
	kvw_load_init_on(&(*out)->load, fleet->loads, (uint32_t)count);
	fleet->workers[count] = *out;
	atomic_store_explicit(&fleet->count, count + 1, memory_order_release);
	return KVW_OK;
}

enum kvw_err kvw_fleet_expect(struct kvw_fleet *fleet, const char *url, double started_s,
	uint32_t *slot, uint32_t *generation)
{
	struct fleet *self = (struct fleet *)fleet;
	struct kvw_worker *worker = find_live(fleet, url);
	struct kvw_expected *expected;
	enum kvw_err err;

	for (expected = self->expected; expected != NULL; expected = expected->next)
		if (same_url(expected->url, url))
			return KVW_ENOTFOUND;
	if (worker != NULL) {
		double known_s = 0;

		if (!atomic_compare_exchange_strong(&worker->started_s, &known_s, started_s) &&
			known_s != started_s)
			return KVW_ENOTFOUND;
		*slot = worker->id;
		*generation = atomic_load(&worker->generation);
		return KVW_OK;
	}
	err = take_free(fleet, &worker);
	if (err != KVW_OK)
		return err;
	expected = calloc(1, sizeof(*expected));
	if (expected == NULL || (expected->url = strndup(url, bare_len(url))) == NULL) {
		free(expected);
		return KVW_ENOMEM;
	}
	expected->started_s = started_s;
	expected->slot = worker->id;
	expected->next = self->expected;
	self->expected = expected;
	*slot = worker->id;
	*generation = atomic_load(&worker->generation);
	return KVW_OK;
}

uint32_t kvw_fleet_expected_ranks(const struct kvw_fleet *fleet, const char *url)
{
	const struct fleet *self = (const struct fleet *)fleet;
	size_t wanted = bare_len(url), len;
	uint32_t ranks = 0;

	for (const struct kvw_expected *e = self->expected; e != NULL; e = e->next) {
		int rank = kvw_rank_split(e->url, &len);

		if (rank != KVW_RANK_NONE && len == wanted && memcmp(e->url, url, len) == 0 &&
			(uint32_t)rank >= ranks)
			ranks = (uint32_t)rank + 1;
	}
	return ranks;
}

size_t kvw_fleet_expect_no_more(struct kvw_fleet *fleet)
{
	struct fleet *self = (struct fleet *)fleet;
	size_t count = 0;

	while (self->expected != NULL) {
		struct kvw_expected *expected = self->expected;

		self->expected = expected->next;
		if (fleet->freed != NULL)
			fleet->freed(fleet->freed_arg, expected->slot);
		free_expected(expected);
		count++;
	}
	return count;
}

enum kvw_err kvw_fleet_take_slot(
	struct kvw_fleet *fleet, const char *url, double *started_s, struct kvw_worker **out)
{
	struct kvw_worker *worker = take_expected((struct fleet *)fleet, url, started_s);
	enum kvw_err err = KVW_OK;

	if (worker != NULL) {
		*out = worker;
		return KVW_OK;
	}
	err = take_free(fleet, out);
	if (err == KVW_ELIMIT && kvw_fleet_expect_no_more(fleet) > 0)
		err = take_free(fleet, out);
	return err;
}

void kvw_expected_finish(struct fleet *self)
{
	self->base.freed = NULL;
	(void)kvw_fleet_expect_no_more(&self->base);
}
