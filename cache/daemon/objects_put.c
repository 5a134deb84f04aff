/*
 * objects_put.c - puts an object, or replaces one.
 *
 * A new object is filled in its final place, under its own key, and published there. If the key
 * exists already, or another put is filling it, the bytes are staged: filled under a key that is
 * never published, and compared with the existing object when they are complete. If they differ,
 * the object gets another key (objects_names.c), and the new bytes are copied to a place under it;
 * the old ones stay as long as they are leased. The change is durable before the put is answered;
 * if it cannot be made durable, the old object stays. An object that only a lower tier has is not
 * loaded for a comparison, but replaced; that is rare, since clients ask for an object before they
 * put it.
 *
 * An object of up to `memory_only` bytes stays in memory. Another such object replaces it without a
 * change of the key, since no other tier has it.
 *
 * A tier that cannot be asked now may have the key, too; it is not waited for, since clients put
 * the same content under the same name.
 *
 * The put that ends last wins: a put whose key has changed when it ends is treated as staged, and a
 * put that finds another one filling the key changes the key.
 */
#include <stdlib.h>
#include <string.h>

#include "core/lower.h"
#include "core/put.h"
#include "daemon/objects_parts.h"

#define PUTS_MOST 1024 /* under way */
#define TRIES     8    /* attempts to take a key that other puts are filling */

struct kvt_object_put {
	struct kvt_key key; /* when it began */
	/* tenant: the one whose limits count; may be the bucket */
	struct kvt_tenant bucket, tenant;
	uint64_t bytes;
	struct kvt_reservation *reservation;
	const struct kvt_segment *segments; /* the reservation's */
	uint32_t count;
	bool direct; /* fills the object's own key; else the put is staged */
	struct kvt_object_name name;
	char text[]; /* text of the name */
};

/* --- beginning -------------------------------------------------------------------------------- */

static bool stays_in_memory(const struct kvt_objects *o, uint64_t bytes)
{
	return bytes <= o->memory_only;
}

static enum kvt_status reserve(struct kvt_objects *o, const struct kvt_key *key,
	const struct kvt_tenant *tenant, uint64_t bytes, struct kvt_reservation **out,
	const struct kvt_segment **segments, uint32_t *count)
{
	struct kvt_item item = {.size = sizeof(item),
		.key = *key,
		.bytes = bytes,
		.tenant = *tenant,
		.flags = stays_in_memory(o, bytes) ? KVT_ITEM_MEMORY : 0};
	uint32_t status;

	return kvt_put_reserve(o->cache, &item, 1, out, segments, count, &status);
}

/* Makes a key that no object has. */
static void staging_key(struct kvt_objects *o, struct kvt_key *out)
{
	uint64_t number = atomic_fetch_add(&o->staged, 1);

	memset(out, 0, sizeof(*out));
	memcpy(out->bytes, o->nonce, sizeof(o->nonce));
	memcpy(out->bytes + sizeof(o->nonce), &number, sizeof(number));
}

static enum kvt_status find_room(struct kvt_objects *o, struct kvt_object_put *put)
{
	enum kvt_status status = KVT_EXISTS;
	struct kvt_key staged;

	if (!kvt_object_is_known(o, &put->key))
		status = reserve(o, &put->key, &put->tenant, put->bytes, &put->reservation,
			&put->segments, &put->count);
	put->direct = status == KVT_OK;
	if (status != KVT_EXISTS)
		return status;
	staging_key(o, &staged);
	return reserve(o, &staged, &o->staging, put->bytes, &put->reservation, &put->segments,
		&put->count);
}

/* Limits the puts under way, in number and in bytes, so that unfinished ones cannot fill the
 * segment. */
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

/* Chooses the tenant whose limits count: the bucket, unless the client names a tenant that this
 * bucket charges separately. */
static void choose_tenant(
	struct kvt_objects *o, struct kvt_object_put *put, const struct kvt_tenant *named)
{
	static const struct kvt_tenant none;

	put->tenant = put->bucket;
	if (named != NULL && memcmp(named, &none, sizeof(none)) != 0 && kvt_bucket_has_tenants(o, &put->bucket))
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
	kvt_object_key(o, &put->name, &put->key);
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

/* Two lists of segments, walked together in pieces that lie within one segment of each. */
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

/* Returns whether the object in memory has the bytes that were put. If not, *free says whether it
 * may be replaced under its key. */
static bool is_same(struct kvt_objects *o, const struct kvt_object_put *put, const struct kvt_key *key, bool *free)
{
	struct kvt_lease *lease;
	bool same;

	if (kvt_get(o->cache, key, 1, 0, &lease) != KVT_OK)
		return false;
	*free = stays_in_memory(o, lease->views[0].bytes) && stays_in_memory(o, put->bytes) &&
		!kvt_lower_is_known(o->cache, key);
	same = lease->views[0].bytes == put->bytes &&
	       bytes_equal(
		       &lease->segments[lease->views[0].first_segment], put->segments, put->bytes);
	if (same &&
		/* a client wrote to these bytes: they must not be leased */
		kvt_verify(o->cache, lease) != KVT_OK)
		same = false;
	kvt_release(o->cache, lease);
	return same;
}

/* --- ending ----------------------------------------------------------------------------------- */

/* Copies the bytes to a place under the object's present key. KVT_EXISTS: another object has the
 * key, or another put is filling it. */
static enum kvt_status take_place(struct kvt_objects *o, const struct kvt_object_put *put, const struct kvt_key *key,
	const struct kvt_checksum *sum)
{
	const struct kvt_segment *segments;
	struct kvt_reservation *place;
	enum kvt_status status;
	uint32_t count;

	status = reserve(o, key, &put->tenant, put->bytes, &place, &segments, &count);
	if (status != KVT_OK)
		return status;
	bytes_copy(segments, put->segments, put->bytes);
	status = kvt_put_publish(o->cache, place, sum);
	/* erased meanwhile: the caller tries again */
	return status == KVT_MISS ? KVT_EXISTS : status;
}

/* Makes the staged bytes the object of their name. The caller keeps the reservation. */
static enum kvt_status settle(struct kvt_objects *o, const struct kvt_object_put *put,
	const struct kvt_checksum *sum, bool wait, enum kvt_put_outcome *outcome)
{
	enum kvt_status status = KVT_OK;
	struct kvt_key key;

	for (int i = 0; i < TRIES; i++) {
		bool free = false, there;

		kvt_object_key(o, &put->name, &key);
		there = kvt_object_is_known(o, &key);
		if (there && is_same(o, put, &key, &free)) {
			*outcome = KVT_PUT_SAME;
			return KVT_OK;
		}
		if (there)
			*outcome = KVT_PUT_REPLACED;
		if (there && free) {
			(void)!kvt_erase(o->cache, &key, 1, 0, NULL);
		} else if (there || status == KVT_EXISTS) {
			if (!wait)
				return KVT_MISS;
			if (kvt_object_rename(o, &put->name, &key) != KVT_OK)
				return KVT_BUSY;
			kvt_object_key(o, &put->name, &key);
		}
		status = take_place(o, put, &key, sum);
		if (status != KVT_EXISTS)
			return status;
	}
	return KVT_BUSY;
}

/* Returns whether a put under the object's own key is still the first one with that key. */
static bool is_first(struct kvt_objects *o, const struct kvt_object_put *put)
{
	struct kvt_key now;

	kvt_object_key(o, &put->name, &now);
	return memcmp(&now, &put->key, sizeof(now)) == 0 &&
	       /* false: a shared tier turned out to have the object */
	       !kvt_object_is_known(o, &put->key);
}

static enum kvt_status end(struct kvt_objects *o, struct kvt_object_put *put, const struct kvt_checksum *sum,
	bool wait, enum kvt_put_outcome *outcome)
{
	enum kvt_status status;

	if (put->direct && is_first(o, put)) {
		status = kvt_put_publish(o->cache, put->reservation, sum);
		return status == KVT_MISS ? KVT_BUSY : status; /* erased meanwhile */
	}
	status = settle(o, put, sum, wait, outcome);
	if (status != KVT_MISS)
		kvt_put_abort(o->cache, put->reservation);
	return status;
}

enum kvt_status kvt_object_put_end(struct kvt_objects *o, struct kvt_object_put *put,
	const struct kvt_checksum *sum, bool wait, enum kvt_put_outcome *outcome)
{
	struct kvt_objects_counters *c = &o->counters;
	enum kvt_put_outcome was = KVT_PUT_STORED;
	enum kvt_status status = end(o, put, sum, wait, &was);

	if (status == KVT_MISS)
		return status;
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
	kvt_put_abort(o->cache, put->reservation);
	kvt_objects_count(&o->counters.put_aborted, 1);
	leave(o, put);
}
