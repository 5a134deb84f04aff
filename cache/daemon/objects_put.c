/*
 * objects_put.c - putting an object, in place of another one if need be.
 *
 * What is new is filled where it will lie, under its own key, and published as it is. Where there is
 * something under the key already, or another put is filling it, the bytes are staged: filled under
 * a name that is never published, and when they are complete compared with what lies there. If they
 * differ, the old object is erased (its bytes stay as long as it is leased), and the new one copied
 * to a new place under the key. What only a tier below has is not fetched to be compared, but
 * replaced; that is rare, since clients ask for an object before they put it.
 *
 * What tiers that cannot be asked now may have under the key is older than what is put: a shared tier that is
 * left alone erases it before it takes the new object, a store that another process owns before it is
 * shown (core/outdated.h). A local tier that is left alone knows what it has, and that is replaced.
 *
 * The put that ends last wins. A put that comes to its end while another one is still filling the
 * key, and an erase, take the key away from that one (it is usurped): what it fills is then treated
 * as staged.
 *
 * A thread that publishes or erases has the lock of the key's stripe; libkvtier does not need it,
 * but another put could come between the erase and the new object.
 */
#include <stdlib.h>
#include <string.h>

#include "core/barrier.h"
#include "core/limit.h"
#include "core/lower.h"
#include "core/outdated.h"
#include "daemon/objects_parts.h"

#define PUTS_MOST 1024 /* under way */
#define TRIES     8    /* to get hold of a key that others fill */

#define ERASE_NS       5000000000u  /* that an erase may take, before its place is kept instead */
#define SETTLE_NS      1000000000u  /* between two looks at places that are kept */
#define SETTLE_WAIT_NS 30000000000u /* for a drain */

struct kvt_object_put {
	struct kvt_object_put *next, *prev; /* of the stripe, while direct */
	struct kvt_key key;
	struct kvt_tenant bucket, tenant; /* tenant: whose limits count; may be the bucket */
	uint64_t bytes;
	struct kvt_reservation *reservation;
	const struct kvt_segment *segments; /* the reservation's */
	uint32_t count;
	bool direct;  /* fills the very key */
	bool usurped; /* what it fills was erased: staged */
	enum kvt_unseen unseen; /* what tiers may have under the key that they do not show; at its end */
	struct kvt_object_name name;
	char text[]; /* of name */
};

/* --- puts of a stripe; with its lock ---------------------------------------------------------- */

static void enlist(struct kvt_stripe *stripe, struct kvt_object_put *put)
{
	put->prev = NULL;
	put->next = stripe->direct;
	if (put->next != NULL)
		put->next->prev = put;
	stripe->direct = put;
}

static void delist(struct kvt_stripe *stripe, struct kvt_object_put *put)
{
	*(put->prev != NULL ? &put->prev->next : &stripe->direct) = put->next;
	if (put->next != NULL)
		put->next->prev = put->prev;
}

void kvt_puts_usurp(struct kvt_stripe *stripe, const struct kvt_key *key)
{
	for (struct kvt_object_put *put = stripe->direct; put != NULL; put = put->next)
		if (memcmp(&put->key, key, sizeof(*key)) == 0)
			put->usurped = true;
}

void kvt_puts_usurp_tenant(struct kvt_objects *o, const struct kvt_tenant *tenant)
{
	for (size_t i = 0; i < KVT_STRIPES; i++) {
		struct kvt_stripe *stripe = &o->stripes[i];

		pthread_mutex_lock(&stripe->lock);
		for (struct kvt_object_put *put = stripe->direct; put != NULL; put = put->next)
			if (memcmp(&put->tenant, tenant, sizeof(*tenant)) == 0 ||
				memcmp(&put->bucket, tenant, sizeof(*tenant)) == 0)
				put->usurped = true;
		pthread_mutex_unlock(&stripe->lock);
	}
}

/* --- beginning -------------------------------------------------------------------------------- */

static enum kvt_status reserve(struct kvt_objects *o, const struct kvt_key *key,
	const struct kvt_tenant *tenant, uint64_t bytes, struct kvt_reservation **out,
	const struct kvt_segment **segments, uint32_t *count)
{
	struct kvt_item item = {
		.size = sizeof(item), .key = *key, .bytes = bytes, .tenant = *tenant};
	uint32_t status;

	return kvt_put_reserve(o->cache, &item, 1, out, segments, count, &status);
}

/* A name that nothing else has. */
static void staging_key(struct kvt_objects *o, struct kvt_key *out)
{
	uint64_t number = atomic_fetch_add(&o->staged, 1);

	memset(out, 0, sizeof(*out));
	memcpy(out->bytes, o->nonce, sizeof(o->nonce));
	memcpy(out->bytes + sizeof(o->nonce), &number, sizeof(number));
}

static enum kvt_status find_room(struct kvt_objects *o, struct kvt_object_put *put)
{
	struct kvt_stripe *stripe = kvt_object_stripe(o, &put->key);
	enum kvt_status status = KVT_EXISTS;
	struct kvt_key staged;

	pthread_mutex_lock(&stripe->lock);
	if (kvt_lower_unseen(o->cache, &put->key) != KVT_UNSEEN_THERE &&
		kvt_object_tier(o, &put->key) == KVT_TIER_NONE)
		status = reserve(o, &put->key, &put->tenant, put->bytes, &put->reservation,
			&put->segments, &put->count);
	put->direct = status == KVT_OK;
	if (put->direct)
		enlist(stripe, put);
	pthread_mutex_unlock(&stripe->lock);
	if (status != KVT_EXISTS)
		return status;
	staging_key(o, &staged);
	return reserve(o, &staged, &o->staging, put->bytes, &put->reservation, &put->segments,
		&put->count);
}

/* Bounds what is being filled, in number and in bytes: half-sent puts must not fill the segment. */
static bool enter(struct kvt_objects *o, uint64_t bytes)
{
	uint64_t puts = atomic_fetch_add(&o->puts_now, 1);
	uint64_t before = atomic_fetch_add(&o->put_bytes_now, bytes);

	if (puts < PUTS_MOST && (before == 0 || before + bytes <= o->put_room))
		return true;
	atomic_fetch_sub(&o->puts_now, 1);
	atomic_fetch_sub(&o->put_bytes_now, bytes);
	return false;
}

static void leave(struct kvt_objects *o, struct kvt_object_put *put)
{
	atomic_fetch_sub(&o->puts_now, 1);
	atomic_fetch_sub(&o->put_bytes_now, put->bytes);
	free(put);
}

bool kvt_bucket_has_tenants(const struct kvt_objects *o, const struct kvt_tenant *bucket)
{
	for (size_t i = 0; i < o->limited_count; i++)
		if (memcmp(&o->limited[i], bucket, sizeof(*bucket)) == 0)
			return false;
	return !o->shared;
}

/* Whose limits count: the bucket's, unless the client names a tenant that can be kept apart. */
static void choose_tenant(
	struct kvt_objects *o, struct kvt_object_put *put, const struct kvt_tenant *named)
{
	static const struct kvt_tenant none;

	put->tenant = put->bucket;
	if (named == NULL || memcmp(named, &none, sizeof(none)) == 0 ||
		!kvt_bucket_has_tenants(o, &put->bucket))
		return;
	if (kvt_roster_enter(o->roster, &put->bucket, named))
		put->tenant = *named;
}

static bool is_limited(struct kvt_objects *o, const struct kvt_object_put *put)
{
	struct kvt_item item = {
		.size = sizeof(item), .key = put->key, .bytes = put->bytes, .tenant = put->tenant};

	return kvt_put_is_limited(o->cache, &item);
}

bool kvt_object_is_limited(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes)
{
	struct kvt_object_put put = {.bytes = bytes};

	kvt_tenant_of(name->bucket.data, name->bucket.len, &put.bucket);
	choose_tenant(o, &put, tenant);
	return is_limited(o, &put);
}

static enum kvt_status begin(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes, struct kvt_object_put **out)
{
	struct kvt_object_put *put;
	enum kvt_status status;

	if (!kvt_object_name_valid(name) || bytes == 0 || bytes > o->object_max)
		return KVT_EINVAL;
	if (kvt_segment_is_quiet(o->segment) || !enter(o, bytes))
		return KVT_BUSY;
	put = calloc(1, sizeof(*put) + name->bucket.len + name->key.len);
	if (put == NULL) {
		atomic_fetch_sub(&o->puts_now, 1);
		atomic_fetch_sub(&o->put_bytes_now, bytes);
		return KVT_ENOMEM;
	}
	put->bytes = bytes;
	put->name = kvt_object_name_copy(name, put->text);
	kvt_object_key(name, &put->key);
	kvt_tenant_of(name->bucket.data, name->bucket.len, &put->bucket);
	choose_tenant(o, put, tenant);
	status = find_room(o, put);
	if (status != KVT_OK)
		leave(o, put);
	else
		*out = put;
	return status;
}

enum kvt_status kvt_object_put_begin(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes, struct kvt_object_put **out,
	const struct kvt_segment **segments, uint32_t *count)
{
	enum kvt_status status = begin(o, name, tenant, bytes, out);

	kvt_objects_count(&o->counters.puts, 1);
	if (status != KVT_OK) {
		kvt_objects_count(&o->counters.put_refused, 1);
		return status;
	}
	*segments = (*out)->segments;
	*count = (*out)->count;
	return KVT_OK;
}

/* --- comparing and copying -------------------------------------------------------------------- */

/* Two lists of segments, walked together in pieces that lie in one segment of each. */
struct pair {
	const struct kvt_segment *a, *b;
	uint64_t at_a, at_b, left;
};

static uint64_t next_piece(struct pair *p, void **a, void **b)
{
	uint64_t n = p->left;

	if (n > p->a->bytes - p->at_a)
		n = p->a->bytes - p->at_a;
	if (n > p->b->bytes - p->at_b)
		n = p->b->bytes - p->at_b;
	*a = (char *)p->a->base + p->at_a;
	*b = (char *)p->b->base + p->at_b;
	p->at_a += n;
	p->at_b += n;
	p->left -= n;
	if (p->at_a == p->a->bytes) {
		p->a++;
		p->at_a = 0;
	}
	if (p->at_b == p->b->bytes) {
		p->b++;
		p->at_b = 0;
	}
	return n;
}

static bool bytes_equal(const struct kvt_segment *a, const struct kvt_segment *b, uint64_t bytes)
{
	struct pair p = {.a = a, .b = b, .left = bytes};
	void *x, *y;

	while (p.left != 0) {
		uint64_t n = next_piece(&p, &x, &y);

		if (memcmp(x, y, n) != 0)
			return false;
	}
	return true;
}

static void bytes_copy(const struct kvt_segment *to, const struct kvt_segment *from, uint64_t bytes)
{
	struct pair p = {.a = to, .b = from, .left = bytes};
	void *x, *y;

	while (p.left != 0) {
		uint64_t n = next_piece(&p, &x, &y);

		memcpy(x, y, n);
	}
}

/* Does the object that lies in memory have the bytes that were staged? */
static bool is_same(struct kvt_objects *o, const struct kvt_object_put *put)
{
	struct kvt_lease *lease;
	bool same;

	if (kvt_get(o->cache, &put->key, 1, 0, &lease) != KVT_OK)
		return false;
	same = lease->views[0].bytes == put->bytes &&
	       bytes_equal(
		       &lease->segments[lease->views[0].first_segment], put->segments, put->bytes);
	if (same &&
		kvt_verify(o->cache, lease) != KVT_OK) /* a client wrote there: not to be leased */
		same = false;
	kvt_release(o->cache, lease);
	return same;
}

/* --- ending ----------------------------------------------------------------------------------- */

/* Erases what is under the key. What it was shall not come back, should the process end before that
 * is on disk. */
static enum kvt_status clear_key(
	struct kvt_objects *o, struct kvt_stripe *stripe, const struct kvt_key *key)
{
	enum kvt_status status;
	uint32_t slot;
	uint64_t op;

	status = kvt_doomed_add(o->doomed, key, &slot);
	if (status != KVT_OK)
		return status;
	kvt_puts_usurp(stripe, key);
	status = kvt_erase_begin(o->cache, key, 1, ERASE_NS, slot, &op);
	if (status != KVT_OK)
		kvt_doomed_drop(o->doomed, slot);
	return status;
}

/* What tiers that cannot be asked now may have under the key is not read from now on; its place in memory is the
 * caller's. Asked in any case: a tier may have failed since `unseen` was looked at. KVT_EXISTS: a local one has it. */
static enum kvt_status outdate(
	struct kvt_objects *o, const struct kvt_key *key, enum kvt_unseen unseen)
{
	if (unseen == KVT_UNSEEN_OWNED)
		kvt_doomed_remember(o->doomed, key);
	return kvt_outdate(o->cache, key);
}

/* The granting thread. Places that were kept because an erase was not durable are free once all tiers are
 * there, have erased what they had to, and have been drained. */
void kvt_replaced_tend(struct kvt_objects *o)
{
	int64_t now_ns = kvt_now(o->surroundings);
	uint64_t kept = kvt_doomed_kept(o->doomed), op;

	if (kept == 0 || o->settling || now_ns < o->settle_ns)
		return;
	o->settle_ns = now_ns + SETTLE_NS;
	if (kvt_object_no_tier_is(o, KVT_TIER_BROKEN) && !kvt_barriers_owe(o->cache))
		o->settling = kvt_drain_begin(o->cache, SETTLE_WAIT_NS, kept, &op) == KVT_OK;
}

void kvt_replaced_done(struct kvt_objects *o, const struct kvt_completion *done)
{
	bool durable = done->status == KVT_OK;

	if (done->kind == KVT_OP_DRAIN) {
		o->settling = false;
		if (durable)
			kvt_doomed_settled(o->doomed, done->user);
	} else if (durable) {
		kvt_doomed_remove(o->doomed, (uint32_t)done->user);
	} else {
		kvt_doomed_keep(o->doomed, (uint32_t)done->user);
	}
}

/* A place under the key, of which nothing older is read any more; usurps the put that has it. */
static enum kvt_status take_key(struct kvt_objects *o, struct kvt_stripe *stripe,
	const struct kvt_object_put *put, bool there, struct kvt_reservation **out,
	const struct kvt_segment **segments, uint32_t *count)
{
	enum kvt_status status = there ? KVT_EXISTS : KVT_OK;
	bool cleared = false;

	for (int i = 0; i < TRIES; i++) {
		if (status == KVT_EXISTS) {
			status = clear_key(o, stripe, &put->key);
			cleared = true;
		}
		if (status != KVT_OK)
			return status;
		status = reserve(o, &put->key, &put->tenant, put->bytes, out, segments, count);
		if (status != KVT_OK && status != KVT_EXISTS)
			return status;
		if (status == KVT_OK && cleared)
			return status; /* of all tiers */
		if (status == KVT_OK) {
			status = outdate(o, &put->key, put->unseen);
			if (status == KVT_OK)
				return status;
			kvt_put_abort(o->cache, *out);
		}
	}
	return KVT_BUSY;
}

/* What was staged becomes the object of its key. The reservation stays. */
static enum kvt_status settle(struct kvt_objects *o, struct kvt_stripe *stripe,
	const struct kvt_object_put *put, const struct kvt_checksum *sum,
	enum kvt_put_outcome *outcome)
{
	uint8_t tier = kvt_object_tier(o, &put->key);
	const struct kvt_segment *segments;
	struct kvt_reservation *place;
	enum kvt_status status;
	uint32_t count;

	if (tier == KVT_TIER_L1 && is_same(o, put)) {
		*outcome = KVT_PUT_SAME;
		return KVT_OK;
	}
	status = take_key(o, stripe, put,
		tier != KVT_TIER_NONE || put->usurped || put->unseen == KVT_UNSEEN_THERE, &place,
		&segments, &count);
	if (status != KVT_OK)
		return status;
	bytes_copy(segments, put->segments, put->bytes);
	*outcome = tier != KVT_TIER_NONE ? KVT_PUT_REPLACED : KVT_PUT_STORED;
	return kvt_put_commit(o->cache, place, 1, sum);
}

/* A direct one: is there nothing under the key that is to be replaced, as far as can be known? KVT_EXISTS: there is. */
static enum kvt_status find_nothing(struct kvt_objects *o, const struct kvt_object_put *put)
{
	if (put->usurped || put->unseen == KVT_UNSEEN_THERE ||
		kvt_object_tier(o, &put->key) != KVT_TIER_NONE)
		return KVT_EXISTS; /* a shared tier turned out to have one */
	return outdate(o, &put->key, put->unseen);
}

static enum kvt_status end(struct kvt_objects *o, struct kvt_object_put *put,
	const struct kvt_checksum *sum, enum kvt_put_outcome *outcome)
{
	struct kvt_stripe *stripe = kvt_object_stripe(o, &put->key);
	enum kvt_status status = KVT_EXISTS;

	pthread_mutex_lock(&stripe->lock);
	put->unseen = kvt_lower_unseen(o->cache, &put->key); /* first: a tier that comes now is looked at below */
	if (put->direct) {
		delist(stripe, put);
		status = find_nothing(o, put);
		put->usurped = status == KVT_EXISTS;
	}
	if (status == KVT_OK) {
		*outcome = KVT_PUT_STORED;
		status = kvt_put_commit(o->cache, put->reservation, 1, sum);
	} else if (status != KVT_EXISTS) {
		kvt_put_abort(o->cache, put->reservation);
	} else {
		status = settle(o, stripe, put, sum, outcome);
		kvt_put_abort(o->cache, put->reservation);
	}
	pthread_mutex_unlock(&stripe->lock);
	return status;
}

enum kvt_status kvt_object_put_end(struct kvt_objects *o, struct kvt_object_put *put,
	const struct kvt_checksum *sum, enum kvt_put_outcome *outcome)
{
	struct kvt_objects_counters *c = &o->counters;
	enum kvt_put_outcome was = KVT_PUT_STORED;
	enum kvt_status status = end(o, put, sum, &was);

	if (status == KVT_OK) {
		*outcome = was;
		kvt_catalog_note(o->catalog, &put->name, put->bytes);
		kvt_objects_count(was == KVT_PUT_SAME       ? &c->same
				  : was == KVT_PUT_REPLACED ? &c->replaced
							    : &c->stored,
			1);
		kvt_objects_count(&c->put_bytes, put->bytes);
	} else {
		kvt_objects_count(&c->put_refused, 1);
		if (status == KVT_FULL && is_limited(o, put))
			*outcome = KVT_PUT_LIMITED;
	}
	leave(o, put);
	return status;
}

void kvt_object_put_abort(struct kvt_objects *o, struct kvt_object_put *put)
{
	struct kvt_stripe *stripe = kvt_object_stripe(o, &put->key);

	if (put->direct) {
		pthread_mutex_lock(&stripe->lock);
		delist(stripe, put);
		pthread_mutex_unlock(&stripe->lock);
	}
	kvt_put_abort(o->cache, put->reservation);
	kvt_objects_count(&o->counters.put_aborted, 1);
	leave(o, put);
}
