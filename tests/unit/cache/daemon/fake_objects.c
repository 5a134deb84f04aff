/*
 * fake_objects.c - objects.h and what the server asks of segment.h, in plain memory, and as
 * obedient or as unwilling as a test wants.
 */
#include "fake_objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chunk/checksum.h"

struct kvt_object_put {
	struct fake_object object;
};

struct kvt_objects *fake_create(void)
{
	struct kvt_objects *o = calloc(1, sizeof(*o));

	o->memory = calloc(1, FAKE_BYTES);
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

void fake_destroy(struct kvt_objects *o)
{
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		free(o->objects[i].pieces);
	pthread_mutex_destroy(&o->lock);
	free(o->memory);
	free(o);
}

size_t fake_leases(struct kvt_objects *o)
{
	size_t count;

	pthread_mutex_lock(&o->lock);
	count = o->leased_count;
	pthread_mutex_unlock(&o->lock);
	return count;
}

size_t fake_puts(struct kvt_objects *o)
{
	size_t count;

	pthread_mutex_lock(&o->lock);
	count = o->puts_now;
	pthread_mutex_unlock(&o->lock);
	return count;
}

uint64_t fake_granted(struct kvt_objects *o)
{
	uint64_t granted;

	pthread_mutex_lock(&o->lock);
	granted = o->next_lease;
	pthread_mutex_unlock(&o->lock);
	return granted;
}

bool fake_holds(struct kvt_objects *o, uint64_t offset, const char *bytes, size_t len)
{
	bool same;

	pthread_mutex_lock(&o->lock);
	same = memcmp(o->memory + offset, bytes, len) == 0;
	pthread_mutex_unlock(&o->lock);
	return same;
}

struct kvt_segment_file *fake_segment(struct kvt_objects *o)
{
	return (struct kvt_segment_file *)(void *)o;
}

int64_t kvt_segment_quiet_until(const struct kvt_segment_file *s)
{
	return atomic_load(&((struct kvt_objects *)(uintptr_t)s)->quiet_until);
}

void kvt_segment_stats(const struct kvt_segment_file *s, struct kvt_segment_stats *out)
{
	(void)s;
	*out = (struct kvt_segment_stats){.bytes = FAKE_BYTES, .relinked = 7};
}

static void take_name(struct fake_object *object, const struct kvt_object_name *name)
{
	memcpy(object->bucket, name->bucket.data, name->bucket.len);
	memcpy(object->key, name->key.data, name->key.len);
}

static struct fake_object *find(struct kvt_objects *o, const char *bucket, const char *key)
{
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		if (o->objects[i].pieces != NULL && strcmp(o->objects[i].bucket, bucket) == 0 &&
			strcmp(o->objects[i].key, key) == 0)
			return &o->objects[i];
	return NULL;
}

/* --- put --- */

enum kvt_status kvt_object_put_begin(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes, struct kvt_object_put **out,
	const struct kvt_segment **segments, uint32_t *count)
{
	struct kvt_object_put *put;
	uint64_t at = 0;

	pthread_mutex_lock(&o->lock);
	o->last_named = tenant != NULL;
	o->last_tenant = tenant != NULL ? *tenant : (struct kvt_tenant){{0}};
	pthread_mutex_unlock(&o->lock);
	if (atomic_load(&o->begin_status) != 0)
		return (enum kvt_status)atomic_load(&o->begin_status);
	put = calloc(1, sizeof(*put));
	take_name(&put->object, name);
	put->object.bytes = bytes;
	put->object.count = (uint32_t)((bytes + FAKE_PIECE - 1) / FAKE_PIECE);
	put->object.pieces = calloc(put->object.count, sizeof(put->object.pieces[0]));
	pthread_mutex_lock(&o->lock);
	if (bytes + (uint64_t)64 * put->object.count > FAKE_BYTES - o->used) {
		pthread_mutex_unlock(&o->lock);
		free(put->object.pieces);
		free(put);
		return KVT_FULL;
	}
	for (uint32_t i = 0; i < put->object.count; i++) {
		uint64_t here = bytes - at < FAKE_PIECE ? bytes - at : FAKE_PIECE;

		put->object.pieces[i] = (struct kvt_segment){o->memory + o->used, here, o->used};
		o->used += here + 64;
		at += here;
	}
	o->puts_now++;
	o->stats.puts++;
	pthread_mutex_unlock(&o->lock);
	*out = put;
	*segments = put->object.pieces;
	*count = put->object.count;
	return KVT_OK;
}

bool kvt_object_is_limited(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes)
{
	(void)name;
	(void)tenant;
	(void)bytes;
	return atomic_load(&o->limited);
}

void kvt_object_put_abort(struct kvt_objects *o, struct kvt_object_put *put)
{
	pthread_mutex_lock(&o->lock);
	o->puts_now--;
	o->stats.put_aborted++;
	pthread_mutex_unlock(&o->lock);
	free(put->object.pieces);
	free(put);
}

enum kvt_status kvt_object_put_end(struct kvt_objects *o, struct kvt_object_put *put,
	const struct kvt_checksum *sum, bool wait, enum kvt_put_outcome *outcome)
{
	struct fake_object *was;
	struct kvt_checksum real;

	kvt_checksum_segments(put->object.pieces, put->object.count, put->object.bytes, &real);
	if (!kvt_checksum_equal(&real, sum))
		abort(); /* the server's checksum is not that of the bytes */
	if (atomic_load(&o->end_status) != 0) {
		kvt_object_put_abort(o, put);
		if (atomic_load(&o->limited))
			*outcome = KVT_PUT_LIMITED;
		return (enum kvt_status)atomic_load(&o->end_status);
	}
	put->object.sum = *sum;
	pthread_mutex_lock(&o->lock);
	was = find(o, put->object.bucket, put->object.key);
	if (!wait && was != NULL && !kvt_checksum_equal(&was->sum, sum)) {
		pthread_mutex_unlock(&o->lock);
		return KVT_MISS;
	}
	o->puts_now--;
	*outcome = KVT_PUT_STORED;
	if (was != NULL) {
		*outcome = kvt_checksum_equal(&was->sum, sum) ? KVT_PUT_SAME : KVT_PUT_REPLACED;
		free(was->pieces);
	}
	for (size_t i = 0; was == NULL && i < FAKE_OBJECTS; i++)
		was = o->objects[i].pieces == NULL ? &o->objects[i] : NULL;
	*was = put->object;
	o->stats.stored += *outcome == KVT_PUT_STORED;
	o->stats.replaced += *outcome == KVT_PUT_REPLACED;
	o->stats.same += *outcome == KVT_PUT_SAME;
	pthread_mutex_unlock(&o->lock);
	free(put);
	return KVT_OK;
}

/* --- leases --- */

struct later {
	struct kvt_objects *o;
	struct fake_object name;
	uint64_t delay_ns;
	kvt_lease_done_fn done;
	void *user;
};

static void answer(
	struct kvt_objects *o, const struct fake_object *name, kvt_lease_done_fn done, void *user)
{
	enum kvt_status status = (enum kvt_status)atomic_load(&o->lease_status);
	struct kvt_grant grant = {0};
	struct fake_object *object;

	pthread_mutex_lock(&o->lock);
	object = find(o, name->bucket, name->key);
	if (status == KVT_OK && object == NULL)
		status = KVT_MISS;
	if (status == KVT_OK) {
		o->leased[o->leased_count++] = ++o->next_lease;
		snprintf(grant.id, sizeof(grant.id), "lease-%llu",
			(unsigned long long)o->next_lease);
		grant.fragments = object->pieces;
		grant.count = object->count;
		grant.bytes = object->bytes;
	}
	pthread_mutex_unlock(&o->lock);
	done(user, status, status == KVT_OK ? &grant : NULL);
}

static void nap(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	nanosleep(&t, NULL);
}

static void *answer_later(void *arg)
{
	struct later *later = arg;

	nap(later->delay_ns);
	answer(later->o, &later->name, later->done, later->user);
	free(later);
	return NULL;
}

void kvt_object_lease(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_lease_wish *wish, kvt_lease_done_fn done, void *user)
{
	struct later *later = calloc(1, sizeof(*later));
	pthread_t thread;

	atomic_store(&o->last_timeout_ns, wish->timeout_ns);
	atomic_store(&o->last_ttl_ns, wish->ttl_ns);
	take_name(&later->name, name);
	later->delay_ns = atomic_load(&o->lease_delay_ns);
	if (later->delay_ns == 0) {
		answer(o, &later->name, done, user);
		free(later);
		return;
	}
	later->o = o;
	later->done = done;
	later->user = user;
	pthread_create(&thread, NULL, answer_later, later);
	pthread_detach(thread);
}

enum kvt_status kvt_object_release(struct kvt_objects *o, struct kvw_slice id)
{
	enum kvt_status status = KVT_MISS;
	char text[64];

	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < o->leased_count; i++) {
		snprintf(text, sizeof(text), "lease-%llu", (unsigned long long)o->leased[i]);
		if (!kvw_slice_equal(id, kvw_slice_of(text)))
			continue;
		o->leased[i] = o->leased[--o->leased_count];
		status = KVT_OK;
		break;
	}
	pthread_mutex_unlock(&o->lock);
	return status;
}

/* --- administration --- */

enum kvt_status kvt_object_erase(struct kvt_objects *o, const struct kvt_object_name *name)
{
	struct fake_object wanted = {0}, *object;

	nap(atomic_load(&o->erase_delay_ns));
	take_name(&wanted, name);
	pthread_mutex_lock(&o->lock);
	object = find(o, wanted.bucket, wanted.key);
	if (object != NULL) {
		free(object->pieces);
		object->pieces = NULL;
	}
	pthread_mutex_unlock(&o->lock);
	if (atomic_load(&o->erase_status) != 0)
		return (enum kvt_status)atomic_load(&o->erase_status);
	return object != NULL ? KVT_OK : KVT_MISS;
}

enum kvt_status kvt_bucket_erase(struct kvt_objects *o, struct kvw_slice bucket,
	const struct kvt_tenant *tenant, size_t *erased)
{
	pthread_mutex_lock(&o->lock);
	o->last_named = tenant != NULL;
	o->last_tenant = tenant != NULL ? *tenant : (struct kvt_tenant){{0}};
	*erased = 0;
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		if (o->objects[i].pieces != NULL &&
			kvw_slice_equal(kvw_slice_of(o->objects[i].bucket), bucket)) {
			free(o->objects[i].pieces);
			o->objects[i].pieces = NULL;
			(*erased)++;
		}
	pthread_mutex_unlock(&o->lock);
	return KVT_OK;
}

enum kvt_status kvt_objects_raise(struct kvt_objects *o, const struct kvt_table_ask *ask)
{
	pthread_mutex_lock(&o->lock);
	o->last_named = ask->tenant != NULL;
	o->last_tenant = ask->tenant != NULL ? *ask->tenant : (struct kvt_tenant){{0}};
	o->last_slot = ask->raise;
	pthread_mutex_unlock(&o->lock);
	return (enum kvt_status)atomic_load(&o->erase_status);
}

/* As if slot 7 had been changed by number 3. */
enum kvt_status kvt_objects_table(struct kvt_objects *o, struct kvt_table_ask *ask)
{
	(void)o;
	memset(ask->now, 0xab, sizeof(ask->now));
	ask->change_count = ask->after < 3;
	ask->changes[0] = (struct kvt_slot_change){7, 3};
	ask->more = false;
	ask->sum = 3;
	return KVT_OK;
}

size_t kvt_objects_list(struct kvt_objects *o, struct kvw_slice bucket, struct kvw_slice after,
	size_t most, void (*visit)(void *user, const struct kvt_object_entry *entry), void *user,
	bool *more)
{
	const struct fake_object *next;
	char last[KVT_OBJECT_KEY_MOST + 1] = "";
	size_t count = 0;

	memcpy(last, after.data != NULL ? after.data : "", after.len);
	pthread_mutex_lock(&o->lock);
	*more = false;
	do {
		next = NULL;
		for (size_t i = 0; i < FAKE_OBJECTS; i++) {
			const struct fake_object *x = &o->objects[i];

			if (x->pieces != NULL && kvw_slice_equal(kvw_slice_of(x->bucket), bucket) &&
				strcmp(x->key, last) > 0 &&
				(next == NULL || strcmp(x->key, next->key) < 0))
				next = x;
		}
		*more = next != NULL && count == most;
		if (next == NULL || *more)
			break;
		visit(user,
			&(struct kvt_object_entry){
				.bucket = next->bucket, .key = next->key, .bytes = next->bytes});
		memcpy(last, next->key, sizeof(last));
		count++;
	} while (true);
	pthread_mutex_unlock(&o->lock);
	return count;
}

size_t kvt_buckets_list(struct kvt_objects *o,
	void (*visit)(void *user, const struct kvt_bucket_entry *entry), void *user)
{
	(void)o;
	visit(user, &(struct kvt_bucket_entry){.bucket = "b\"1", .objects = 2, .bytes = 3});
	return 1;
}

void kvt_objects_stats(struct kvt_objects *o, struct kvt_objects_stats *out)
{
	pthread_mutex_lock(&o->lock);
	*out = o->stats;
	out->leases_now = o->leased_count;
	out->puts_now = o->puts_now;
	out->quiet_until_wall_ns = atomic_load(&o->quiet_until);
	pthread_mutex_unlock(&o->lock);
}

struct kvt *kvt_objects_cache(struct kvt_objects *o)
{
	(void)o;
	return NULL;
}
