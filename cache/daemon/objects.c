/*
 * objects.c - kvtierd's objects: creation and end, their two threads, statistics.
 *
 * An object is a chunk of libkvtier without a parent; libkvtier keeps its bytes and its place. This
 * file adds names, the rules of when a put may write, and time limits. One thread passes on what
 * libkvtier has loaded, and ends leases; another one gives the segment its name back and keeps the
 * catalog, whose file may be slow. Puts, and leases of objects that are in memory, are done
 * entirely by the calling thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define OPENSSL_SUPPRESS_DEPRECATED /* for SHA256_*(), which allocate nothing and cannot fail */
#include <openssl/sha.h>

#include "base/thread.h"
#include "core/generations.h"
#include "daemon/objects_parts.h"
#include "memory/arena.h"

#define TURN_NS     100000000 /* each thread looks for work at least this often */
#define PATH_BYTES  512
#define NAMES_MOST  (1u << 20)
#define NAMES_BYTES ((uint64_t)256 << 20)
#define NAMES_STEPS 64         /* steps of a rewrite of the catalog's file in one turn */
/* at shutdown, how long stored objects may take to reach lower tiers */
#define DRAIN_NS    5000000000

/* --- own threads ------------------------------------------------------------------------------ */

/* Waits until due_ns, for at most a turn, or until fd is readable or the threads are to end. */
static void wait_until(struct kvt_objects *o, int64_t due_ns, int fd)
{
	struct pollfd fds[2] = {{.fd = o->wake, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	int64_t left = due_ns - kvt_now(o->surroundings);

	if (left > TURN_NS)
		left = TURN_NS;
	(void)poll(fds, 2, left > 0 ? (int)((left + 999999) / 1000000) : 0);
}

/* Thread: completes loads and ends leases, which clients wait for. */
static void *grant(void *self)
{
	struct kvt_objects *o = self;

	while (!atomic_load(&o->stop)) {
		wait_until(o, kvt_lease_table_due(o->leases), kvt_eventfd(o->cache));
		kvt_leases_poll(o);
		while (kvt_leases_expire(o) != 0)
			;
	}
	return NULL;
}

/* Thread: does the work that no client waits for, and that may wait for a disk. */
static void *keep(void *self)
{
	struct kvt_objects *o = self;

	while (!atomic_load(&o->stop)) {
		(void)kvt_segment_tend(o->segment);
		for (int i = 0; i < NAMES_STEPS && kvt_catalog_step(o->catalog); i++)
			;
		kvt_names_sweep(o);
		wait_until(o, INT64_MAX, -1);
	}
	return NULL;
}

static enum kvt_status start(struct kvt_objects *o)
{
	static void *(*const bodies[KVT_OBJECTS_THREADS])(void *) = {grant, keep};
	enum kvt_status status = KVT_OK;

	o->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (o->wake < 0)
		return KVT_EIO;
	for (int i = 0; i < KVT_OBJECTS_THREADS && status == KVT_OK; i++) {
		if (kvw_thread_start(&o->threads[i], bodies[i], o) == 0)
			o->thread_count++;
		else
			status = KVT_ENOMEM;
	}
	return status;
}

static void stop(struct kvt_objects *o)
{
	uint64_t one = 1;

	if (o->thread_count == 0)
		return;
	atomic_store(&o->stop, true);
	while (write(o->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	while (o->thread_count != 0)
		pthread_join(o->threads[--o->thread_count], NULL);
}

/* --- life ------------------------------------------------------------------------------------- */

/* Opens libkvtier over the segment. Room is given in bytes; its counts of tokens are unused. */
static enum kvt_status open_cache(
	struct kvt_objects *o, const struct kvt_objects_options *options, char *why)
{
	static const char version[] = "kvtierd objects 1";
	struct kvt_config config = *options->cache;
	struct kvt_fingerprint none = {{0}};
	struct kvt_segment_stats segment;
	enum kvt_status status;
	char backing[32];

	kvt_segment_stats(o->segment, &segment);
	snprintf(backing, sizeof(backing), "fd:%d", kvt_segment_fd(o->segment));
	config.l1_backing = backing;
	config.l1_capacity = segment.bytes;
	config.fetch_when_slower = 1;
	config.threads = KVT_THREADS_OWN;
	config.texts = NULL;
	if (memcmp(&config.fingerprint, &none, sizeof(none)) == 0)
		(void)SHA256(
			(const uint8_t *)version, sizeof(version) - 1, config.fingerprint.bytes);
	o->put_room = segment.bytes / 2;
	status = kvt_open(&config, &o->cache);
	if (status == KVT_OK)
		o->shared = kvt_table_is_shared(o->cache);
	else
		snprintf(why, KVT_REASON_BYTES, "the cache cannot be opened: %s",
			kvt_status_text(status));
	return status;
}

static enum kvt_status set_limits(
	struct kvt_objects *o, const struct kvt_objects_options *options, char *why)
{
	enum kvt_status status = kvt_limit_tenant(o->cache, &o->staging, 0, 0);

	o->limited = calloc(options->limit_count + 1, sizeof(*o->limited));
	if (o->limited == NULL)
		return KVT_ENOMEM;
	for (size_t i = 0; i < options->limit_count && status == KVT_OK; i++) {
		const struct kvt_bucket_limit *limit = &options->limits[i];
		struct kvt_tenant tenant;

		kvt_tenant_of(limit->bucket, strlen(limit->bucket), &tenant);
		o->limited[o->limited_count++] = tenant;
		status =
			kvt_limit_tenant(o->cache, &tenant, limit->memory_bytes, limit->nvme_bytes);
	}
	if (status != KVT_OK)
		snprintf(why, KVT_REASON_BYTES, "limits of buckets: %s", kvt_status_text(status));
	return status;
}

static enum kvt_status open_catalog(
	struct kvt_objects *o, const struct kvt_objects_options *options, char *why)
{
	struct kvt_catalog_options names = {
		.path = options->catalog_path,
		.most = NAMES_MOST,
		.most_bytes = NAMES_BYTES,
		.surroundings = o->surroundings,
	};

	o->swept = calloc(1, sizeof(*o->swept));
	return o->swept != NULL ? kvt_catalog_create(&names, why, &o->catalog) : KVT_ENOMEM;
}

static enum kvt_status open_generations(
	struct kvt_objects *o, const struct kvt_objects_options *options, char *why)
{
	char path[PATH_BYTES];

	if (options->generations_path == NULL && !kvt_segment_beside(o->segment, "generations", path, sizeof(path)))
		return KVT_EINVAL;
	return kvt_generation_table_create(options->generations_path != NULL ? options->generations_path : path,
		o->surroundings, why, &o->generations);
}

static enum kvt_status create_parts(
	struct kvt_objects *o, const struct kvt_objects_options *options, char *why)
{
	static const char staging[] = "\0kvtierd staging"; /* no bucket's name contains a NUL */
	enum kvt_status status;

	if (getrandom(o->nonce, sizeof(o->nonce), 0) != (ssize_t)sizeof(o->nonce))
		return KVT_EIO;
	kvt_tenant_of(staging, sizeof(staging) - 1, &o->staging);
	status = kvt_lease_table_create(options->leases_max,
		options->lease_ttl_max_ns + options->lease_grace_ns, kvt_now(o->surroundings),
		&o->leases);
	if (status == KVT_OK)
		status = open_cache(o, options, why);
	if (status == KVT_OK)
		status = set_limits(o, options, why);
	if (status == KVT_OK)
		status = open_catalog(o, options, why);
	if (status == KVT_OK)
		status = open_generations(o, options, why);
	if (status == KVT_OK)
		status = start(o);
	return status;
}

enum kvt_status kvt_objects_create(
	const struct kvt_objects_options *options, char *why, struct kvt_objects **out)
{
	struct kvt_objects *o = calloc(1, sizeof(*o));
	enum kvt_status status;

	if (o == NULL) {
		snprintf(why, KVT_REASON_BYTES, "out of memory");
		return KVT_ENOMEM;
	}
	why[0] = '\0';
	o->surroundings = options->surroundings;
	o->segment = options->segment;
	o->ttl_max_ns = options->lease_ttl_max_ns;
	o->grace_ns = options->lease_grace_ns;
	o->object_max = options->object_max_bytes;
	o->memory_only = options->memory_only_bytes;
	o->wake = -1;
	pthread_mutex_init(&o->pending_lock, NULL);
	status = create_parts(o, options, why);
	if (status == KVT_OK) {
		*out = o;
		return KVT_OK;
	}
	if (why[0] == '\0')
		snprintf(why, KVT_REASON_BYTES, "%s", kvt_status_text(status));
	kvt_objects_destroy(o);
	return status;
}

void kvt_objects_destroy(struct kvt_objects *o)
{
	if (o == NULL)
		return;
	stop(o);
	if (o->cache != NULL) {
		kvt_leases_end(o);
		if (kvt_drain(o->cache, DRAIN_NS) != KVT_OK)
			kvt_note(o->surroundings, KVT_LOG_WARN,
				"objects: not all that was put could be stored below");
		kvt_close(o->cache);
	}
	kvt_catalog_destroy(o->catalog);
	free(o->limited);
	kvt_generation_table_destroy(o->generations);
	free(o->swept);
	kvt_lease_table_destroy(o->leases);
	pthread_mutex_destroy(&o->pending_lock);
	if (o->wake >= 0)
		close(o->wake);
	free(o);
}

/* --- eyes ------------------------------------------------------------------------------------- */

struct kvt *kvt_objects_cache(struct kvt_objects *o)
{
	return o->cache;
}

void kvt_objects_stats(struct kvt_objects *o, struct kvt_objects_stats *out)
{
	struct kvt_objects_counters *c = &o->counters;
	struct kvt_catalog_stats names;

	kvt_catalog_stats(o->catalog, &names);
	*out = (struct kvt_objects_stats){
		.puts = c->puts,
		.put_bytes = c->put_bytes,
		.stored = c->stored,
		.replaced = c->replaced,
		.same = c->same,
		.put_aborted = c->put_aborted,
		.put_refused = c->put_refused,
		.leases = c->leases,
		.lease_hits = c->lease_hits,
		.lease_misses = c->lease_misses,
		.lease_refused = c->lease_refused,
		.releases = c->releases,
		.expired = c->expired,
		.leases_now = kvt_lease_table_count(o->leases),
		.puts_now = o->puts_now,
		.oldest_lease_ns = kvt_lease_table_oldest(o->leases, kvt_now(o->surroundings)),
		.corrupt = c->corrupt,
		.objects = names.names,
		.buckets = names.buckets,
		.unlisted = names.unlisted,
		.quiet_until_wall_ns = kvt_segment_quiet_until(o->segment),
	};
}
