/*
 * fake_tier.c - a tier in memory; fake_tier.h says what tests decide about it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_tier.h"

struct fake_chunk {
	struct fake_chunk *next;
	struct kvt_key key, parent;
	bool has_parent, pinned, seen, gone;
	struct kvt_tenant tenant;
	uint32_t tokens;
	uint64_t ttl_ns, bytes;
	struct kvt_checksum checksum;
	uint8_t data[];
};

/* The table of generations, of all shared tiers that have one. */
static struct {
	pthread_mutex_t lock;
	uint8_t id[KVT_TABLE_ID_BYTES]; /* its first byte 0: there is none */
	uint64_t number, step; /* the step is another one each time, as random ones are */
	uint32_t sum;
	struct kvt_slot_change changes[64]; /* by number */
	size_t count, page;
	bool fails;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct fake_tier *last, *last_remote;
static enum kvt_status refusal;
static uint32_t erase_all_fails;
static struct fake_chunk *beginning;

struct fake_tier *fake_tier(void)
{
	return last;
}

struct fake_tier *fake_remote(void)
{
	return last_remote;
}

void fake_tier_refuse(enum kvt_status status)
{
	refusal = status;
}

void fake_tier_refuse_erase_all(uint32_t times)
{
	erase_all_fails = times;
}

static struct fake_tier *fake(struct kvt_tier *t)
{
	return (struct fake_tier *)t;
}

static struct fake_chunk **find(struct fake_tier *t, const struct kvt_key *key)
{
	struct fake_chunk **at = &t->chunks;

	while (*at != NULL && memcmp(&(*at)->key, key, sizeof(*key)) != 0)
		at = &(*at)->next;
	return at;
}

static enum kvt_status erase_some(
	struct fake_tier *t, const struct kvt_tenant *tenant, size_t *erased);
static void do_raise(uint32_t slot);

/* --- what a test does ------------------------------------------------------------------------- */

void fake_hold(struct fake_tier *t, enum kvt_tier_verb verb, bool on)
{
	pthread_mutex_lock(&t->lock);
	t->hold[verb] = on;
	t->woken = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

void fake_answer(
	struct fake_tier *t, enum kvt_tier_verb verb, enum kvt_status status, uint32_t times)
{
	pthread_mutex_lock(&t->lock);
	t->answer[verb] = status;
	t->answer_times = times;
	pthread_mutex_unlock(&t->lock);
}

size_t fake_begun(struct fake_tier *t, enum kvt_tier_verb verb)
{
	size_t count;

	pthread_mutex_lock(&t->lock);
	count = t->begun[verb];
	pthread_mutex_unlock(&t->lock);
	return count;
}

size_t fake_chunks(struct fake_tier *t)
{
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	for (struct fake_chunk *c = t->chunks; c != NULL; c = c->next)
		count++;
	pthread_mutex_unlock(&t->lock);
	return count;
}

bool fake_has(struct fake_tier *t, const struct kvt_key *key)
{
	bool found;

	pthread_mutex_lock(&t->lock);
	found = *find(t, key) != NULL;
	pthread_mutex_unlock(&t->lock);
	return found;
}

void fake_damage(struct fake_tier *t, const struct kvt_key *key)
{
	struct fake_chunk *c;

	pthread_mutex_lock(&t->lock);
	c = *find(t, key);
	if (c != NULL)
		c->data[c->bytes / 2] ^= 1;
	pthread_mutex_unlock(&t->lock);
}

static struct fake_chunk *make_chunk(const struct kvt_key *key, const void *data, uint64_t bytes)
{
	struct kvt_segment segment = {.base = (void *)(uintptr_t)data, .bytes = bytes};
	struct fake_chunk *c = calloc(1, sizeof(*c) + bytes);

	if (c == NULL)
		abort();
	c->key = *key;
	c->bytes = bytes;
	memcpy(c->data, data, bytes);
	kvt_checksum_segments(&segment, 1, bytes, &c->checksum);
	return c;
}

void fake_tier_begin_with(const struct kvt_key *key, const struct kvt_tenant *tenant,
	const void *data, uint64_t bytes)
{
	struct fake_chunk *c = make_chunk(key, data, bytes);

	c->tenant = *tenant;
	c->next = beginning;
	beginning = c;
}

void fake_plant(struct fake_tier *t, const struct kvt_key *key, const void *data, uint64_t bytes)
{
	struct fake_chunk *c = make_chunk(key, data, bytes);

	pthread_mutex_lock(&t->lock);
	c->next = t->chunks;
	t->chunks = c;
	pthread_mutex_unlock(&t->lock);
}

void fake_vanish(struct fake_tier *t)
{
	pthread_mutex_lock(&t->lock);
	for (struct fake_chunk *c = t->chunks; c != NULL; c = c->next)
		c->gone = true;
	pthread_mutex_unlock(&t->lock);
}

void fake_forget(struct fake_tier *t)
{
	pthread_mutex_lock(&t->lock);
	t->missing_count = 0;
	for (struct fake_chunk *c = t->chunks; c != NULL; c = c->next)
		c->seen = false;
	pthread_mutex_unlock(&t->lock);
}

void fake_table_begin(void)
{
	pthread_mutex_lock(&table.lock);
	table.id[0] = 0;
	table.number = table.count = table.sum = 0;
	table.page = KVT_CHANGES_MOST;
	pthread_mutex_unlock(&table.lock);
}

void fake_table_fails(bool on)
{
	table.fails = on;
}

void fake_table_page(size_t changes)
{
	table.page = changes;
}

void fake_table_raise(uint32_t slot)
{
	pthread_mutex_lock(&table.lock);
	do_raise(slot);
	pthread_mutex_unlock(&table.lock);
}

void fake_table_forget_last(void)
{
	pthread_mutex_lock(&table.lock);
	table.count--;
	table.sum -= (uint32_t)table.changes[table.count].number;
	table.number = table.count > 0 ? table.changes[table.count - 1].number : 0;
	pthread_mutex_unlock(&table.lock);
}

/* --- the contract ----------------------------------------------------------------------------- */

static enum kvt_status make(const struct kvt_tier_ops *ops,
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	enum kvt_status status = refusal;
	struct fake_tier *t;

	refusal = KVT_OK;
	if (status != KVT_OK) {
		snprintf(why, KVT_REASON_BYTES, "the test says so");
		return status;
	}
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return KVT_ENOMEM;
	t->base.ops = ops;
	t->base.piece_bytes = FAKE_PIECE;
	t->remote = ops->unsure != NULL;
	t->watch = options->watch;
	t->chunks = beginning;
	beginning = NULL;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	last = t;
	if (t->remote)
		last_remote = t;
	*out = &t->base;
	return KVT_OK;
}

static enum kvt_status fake_create(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	return make(&fake_tier_ops, options, why, out);
}

static enum kvt_status fake_create_remote(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	return make(&fake_remote_ops, options, why, out);
}

static enum kvt_status fake_create_table(
	const struct kvt_tier_options *options, char *why, struct kvt_tier **out)
{
	return make(&fake_table_ops, options, why, out);
}

/* What the tier knows without asking. */
static struct fake_chunk *visible(struct fake_tier *t, const struct kvt_key *key)
{
	struct fake_chunk *c = *find(t, key);

	return c != NULL && (!t->remote || c->seen) ? c : NULL;
}

static bool fake_unsure(struct kvt_tier *base, const struct kvt_key *key)
{
	struct fake_tier *t = fake(base);
	bool missing = false;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < t->missing_count; i++)
		missing = missing || memcmp(&t->missing[i], key, sizeof(*key)) == 0;
	missing = missing || visible(t, key) != NULL;
	pthread_mutex_unlock(&t->lock);
	return !missing;
}

static uint32_t do_probe(struct fake_tier *t, struct kvt_tier_request *r)
{
	struct fake_chunk *c;

	for (r->found = 0; r->found < r->key_count; r->found++) {
		c = *find(t, &r->keys[r->found]);
		if (c == NULL || c->gone)
			break;
		c->seen = true;
	}
	if (r->found < r->key_count && t->missing_count < FAKE_MISSING)
		t->missing[t->missing_count++] = r->keys[r->found];
	return KVT_OK;
}

static size_t fake_match(struct kvt_tier *base, const struct kvt_key *keys, size_t n)
{
	struct fake_tier *t = fake(base);
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	while (count < n && visible(t, &keys[count]) != NULL)
		count++;
	pthread_mutex_unlock(&t->lock);
	return count;
}

static enum kvt_status fake_known(
	struct kvt_tier *base, const struct kvt_key *key, struct kvt_tier_known *out)
{
	struct fake_tier *t = fake(base);
	struct fake_chunk *c;

	pthread_mutex_lock(&t->lock);
	c = visible(t, key);
	if (c != NULL) {
		out->bytes = c->bytes;
		out->checksum = c->checksum;
		out->tokens = c->tokens;
		out->tenant = c->tenant;
		out->has_parent = c->has_parent;
		out->parent = c->parent;
		out->ttl_ns = c->ttl_ns;
	}
	pthread_mutex_unlock(&t->lock);
	return c != NULL ? KVT_OK : KVT_MISS;
}

static void fake_submit(struct kvt_tier *base, struct kvt_tier_request *request)
{
	struct fake_tier *t = fake(base);

	pthread_mutex_lock(&t->lock);
	request->next = NULL;
	if (t->inbox_last != NULL)
		t->inbox_last->next = request;
	else
		t->inbox = request;
	t->inbox_last = request;
	t->begun[request->verb]++;
	pthread_mutex_unlock(&t->lock);
}

static uint32_t do_read(struct fake_tier *t, struct kvt_tier_request *r)
{
	struct fake_chunk *c = *find(t, r->keys);
	struct kvt_checksum sum;
	uint64_t at = 0;

	if (c == NULL || c->gone)
		return KVT_MISS;
	if (c->bytes != r->bytes)
		return KVT_ECORRUPT;
	for (uint32_t i = 0; i < r->segment_count; i++) {
		memcpy(r->segments[i].base, c->data + at, r->segments[i].bytes);
		at += r->segments[i].bytes;
	}
	kvt_checksum_segments(r->segments, r->segment_count, r->bytes, &sum);
	r->checksum = sum;
	if (kvt_checksum_equal(&sum, &c->checksum))
		return KVT_OK;
	*find(t, r->keys) = c->next;
	free(c);
	return KVT_ECORRUPT;
}

/* Checksums of pieces are those of the bytes that are written, with the whole one that comes with them. */
static void check_pieces(struct fake_tier *t, const struct kvt_tier_request *r)
{
	uint64_t count = kvt_checksum_count(r->bytes, FAKE_PIECE);
	struct kvt_checksum want[1024], whole;

	if (r->pieces == NULL)
		return;
	if (count > sizeof(want) / sizeof(want[0]))
		abort();
	kvt_checksum_pieces(r->segments, r->segment_count, r->bytes, FAKE_PIECE, want, &whole);
	if (!kvt_checksum_equal(&whole, &r->checksum) ||
		memcmp(want, r->pieces, count * sizeof(*want)) != 0)
		abort();
	t->with_pieces++;
}

static uint32_t do_write(struct fake_tier *t, struct kvt_tier_request *r)
{
	struct fake_chunk *c;
	uint64_t at = 0;

	if (*find(t, r->keys) != NULL)
		return KVT_OK;
	c = calloc(1, sizeof(*c) + r->bytes);
	if (c == NULL)
		return KVT_ENOMEM;
	c->key = *r->keys;
	c->has_parent = r->item->parent != NULL;
	if (c->has_parent)
		c->parent = *r->item->parent;
	c->tenant = r->item->tenant;
	c->tokens = r->item->tokens;
	c->ttl_ns = r->item->ttl_ns;
	c->bytes = r->bytes;
	c->checksum = r->checksum;
	check_pieces(t, r);
	for (uint32_t i = 0; i < r->segment_count; i++) {
		memcpy(c->data + at, r->segments[i].base, r->segments[i].bytes);
		at += r->segments[i].bytes;
	}
	c->seen = true;
	c->next = t->chunks;
	t->chunks = c;
	if (t->watch.stored != NULL)
		t->watch.stored(t->watch.self, t->base.ops->id, r->keys, r->item->blocks);
	return KVT_OK;
}

static bool remove_chunk(struct fake_tier *t, struct fake_chunk **at)
{
	struct fake_chunk *c = *at;

	if (c == NULL)
		return false;
	*at = c->next;
	free(c);
	(void)t;
	return true;
}

static void do_raise(uint32_t slot)
{
	size_t i = 0;

	while (i < table.count && table.changes[i].slot != slot)
		i++;
	table.number += ++table.step;
	table.sum += (uint32_t)(table.number - (i < table.count ? table.changes[i].number : 0));
	for (; i + 1 < table.count; i++)
		table.changes[i] = table.changes[i + 1];
	table.changes[i] = (struct kvt_slot_change){slot, table.number};
	table.count = i + 1;
}

static uint32_t do_table(struct kvt_table_ask *ask)
{
	bool known;

	if (table.fails)
		return KVT_EIO;
	pthread_mutex_lock(&table.lock);
	if (table.number < ask->after && memcmp(table.id, ask->id, sizeof(table.id)) == 0)
		table.id[0] = table.number = table.count = table.sum = 0;
	if (table.id[0] == 0) {
		memcpy(table.id, ask->fresh, sizeof(table.id));
		table.id[0] |= 1;
	}
	if (ask->raise != KVT_SLOT_NONE)
		do_raise(ask->raise);
	known = memcmp(table.id, ask->id, sizeof(table.id)) == 0;
	memcpy(ask->now, table.id, sizeof(table.id));
	ask->change_count = 0;
	ask->more = false;
	ask->sum = table.sum;
	for (size_t i = 0; i < table.count; i++) {
		if (known && table.changes[i].number <= ask->after)
			continue;
		ask->more = ask->change_count == table.page;
		if (ask->more)
			break;
		ask->changes[ask->change_count++] = table.changes[i];
	}
	pthread_mutex_unlock(&table.lock);
	return KVT_OK;
}

static uint32_t answer(struct fake_tier *t, struct kvt_tier_request *r)
{
	if (t->answer[r->verb] != KVT_OK && t->answer_times != 0) {
		if (t->answer_times != UINT32_MAX)
			t->answer_times--;
		return t->answer[r->verb];
	}
	switch (r->verb) {
	case KVT_TIER_READ:
		return do_read(t, r);
	case KVT_TIER_WRITE:
		return do_write(t, r);
	case KVT_TIER_ERASE:
		for (size_t i = 0; i < r->key_count; i++)
			remove_chunk(t, find(t, &r->keys[i]));
		return KVT_OK;
	case KVT_TIER_FLUSH:
		return KVT_OK;
	case KVT_TIER_PROBE:
		return t->remote ? do_probe(t, r) : KVT_EINVAL;
	case KVT_TIER_TABLE:
		return do_table(r->table);
	}
	return KVT_EINVAL;
}

/* Next request that is not held back. */
static struct kvt_tier_request *next_request(struct fake_tier *t)
{
	struct kvt_tier_request *before = NULL, *r;

	for (r = t->inbox; r != NULL && t->hold[r->verb]; r = r->next) {
		if (t->write_then_hold && r->verb == KVT_TIER_WRITE)
			do_write(t, r);
		before = r;
	}
	if (r == NULL)
		return NULL;
	*(before != NULL ? &before->next : &t->inbox) = r->next;
	if (t->inbox_last == r)
		t->inbox_last = before;
	return r;
}

static size_t fake_step(struct kvt_tier *base, int64_t wait_ns, int64_t *next_ns)
{
	struct fake_tier *t = fake(base);
	struct kvt_tier_request *r;
	struct timespec until;
	size_t count = 0;

	*next_ns = INT64_MAX;
	pthread_mutex_lock(&t->lock);
	t->steps++;
	if (wait_ns > 0 && t->inbox == NULL && !t->woken) {
		clock_gettime(CLOCK_REALTIME, &until);
		wait_ns = wait_ns > 1000000 ? 1000000 : wait_ns;
		until.tv_nsec += wait_ns;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&t->wake, &t->lock, &until);
	}
	t->woken = false;
	while ((r = next_request(t)) != NULL) {
		r->status = answer(t, r);
		t->ended[r->verb]++;
		count++;
		pthread_mutex_unlock(&t->lock);
		r->done(r);
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return count;
}

static size_t fake_pin(struct kvt_tier *base, const struct kvt_key *keys, size_t n, bool pin)
{
	struct fake_tier *t = fake(base);
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < n; i++) {
		struct fake_chunk *c = *find(t, &keys[i]);

		if (c != NULL) {
			c->pinned = pin;
			count++;
		}
	}
	pthread_mutex_unlock(&t->lock);
	return count;
}

static enum kvt_status erase_some(
	struct fake_tier *t, const struct kvt_tenant *tenant, size_t *erased)
{
	struct fake_chunk **at = &t->chunks;

	*erased = 0;
	pthread_mutex_lock(&t->lock);
	while (*at != NULL) {
		if (tenant == NULL || memcmp(&(*at)->tenant, tenant, sizeof(*tenant)) == 0)
			*erased += remove_chunk(t, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&t->lock);
	return KVT_OK;
}

static void fake_tally(
	struct kvt_tier *base, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes)
{
	struct fake_tier *t = fake(base);

	*chunks = *bytes = 0;
	pthread_mutex_lock(&t->lock);
	for (struct fake_chunk *c = t->chunks; c != NULL; c = c->next) {
		if (c->gone || (tenant != NULL && memcmp(&c->tenant, tenant, sizeof(*tenant)) != 0))
			continue;
		++*chunks;
		*bytes += c->bytes;
	}
	pthread_mutex_unlock(&t->lock);
}

static enum kvt_status fake_erase_tenant(
	struct kvt_tier *t, const struct kvt_tenant *tenant, size_t *erased)
{
	return erase_some(fake(t), tenant, erased);
}

static enum kvt_status fake_erase_all(struct kvt_tier *t, size_t *erased)
{
	*erased = 0;
	if (erase_all_fails != 0) {
		erase_all_fails--;
		return KVT_EIO;
	}
	return erase_some(fake(t), NULL, erased);
}

static enum kvt_status fake_limit_tenant(
	struct kvt_tier *base, const struct kvt_tenant *tenant, uint64_t bytes)
{
	struct fake_tier *t = fake(base);

	pthread_mutex_lock(&t->lock);
	t->limits++;
	t->limited = *tenant;
	t->limit = bytes;
	pthread_mutex_unlock(&t->lock);
	return KVT_OK;
}

static void fake_stats(struct kvt_tier *t, struct kvt_tier_stats *out)
{
	out->chunks = fake_chunks(fake(t));
	snprintf(out->mode, sizeof(out->mode), "fake");
}

static void fake_wake(struct kvt_tier *base)
{
	struct fake_tier *t = fake(base);

	pthread_mutex_lock(&t->lock);
	t->woken = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

static void fake_destroy(struct kvt_tier *base)
{
	struct fake_tier *t = fake(base);
	size_t erased;

	if (t == NULL)
		return;
	erase_some(t, NULL, &erased);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->wake);
	free(t);
	last = NULL;
}

static size_t fake_drop_slots(struct kvt_tier *base, const struct kvt_slot_set *slots)
{
	struct fake_tier *t = fake(base);
	struct fake_chunk **at = &t->chunks;
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	while (*at != NULL) {
		if (kvt_slot_set_has(slots, kvt_tenant_slot(&(*at)->tenant)))
			count += remove_chunk(t, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&t->lock);
	return count;
}

const struct kvt_tier_ops fake_tier_ops = {
	.name = "fake",
	.id = KVT_TIER_NVME,
	.create = fake_create,
	.match = fake_match,
	.known = fake_known,
	.submit = fake_submit,
	.pin = fake_pin,
	.erase_tenant = fake_erase_tenant,
	.erase_all = fake_erase_all,
	.drop_slots = fake_drop_slots,
	.limit_tenant = fake_limit_tenant,
	.tally = fake_tally,
	.stats = fake_stats,
	.wake = fake_wake,
	.step = fake_step,
	.destroy = fake_destroy,
};

const struct kvt_tier_ops fake_remote_ops = {
	.name = "fake-remote",
	.id = KVT_TIER_L2,
	.create = fake_create_remote,
	.match = fake_match,
	.known = fake_known,
	.submit = fake_submit,
	.unsure = fake_unsure,
	.pin = fake_pin,
	.erase_tenant = fake_erase_tenant,
	.erase_all = fake_erase_all,
	.stats = fake_stats,
	.wake = fake_wake,
	.step = fake_step,
	.destroy = fake_destroy,
};

const struct kvt_tier_ops fake_table_ops = {
	.name = "fake-table",
	.id = KVT_TIER_L2,
	.has_table = true,
	.create = fake_create_table,
	.match = fake_match,
	.known = fake_known,
	.submit = fake_submit,
	.unsure = fake_unsure,
	.pin = fake_pin,
	.stats = fake_stats,
	.wake = fake_wake,
	.step = fake_step,
	.destroy = fake_destroy,
};
