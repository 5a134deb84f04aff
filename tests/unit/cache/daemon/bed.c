/*
 * bed.c - bed.h.
 */
#include "bed.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "chunk/checksum.h"

static void ignore(void *self, uint32_t level, const char *line)
{
	(void)self;
	if (level >= KVT_LOG_WARN && getenv("BED_LOG") != NULL)
		fprintf(stderr, "%s\n", line);
}

void bed_init(struct bed *bed, uint64_t bytes)
{
	static int count;

	memset(bed, 0, sizeof(*bed));
	kvt_config_init(&bed->cache, sizeof(bed->cache));
	bed->cache.log = ignore;
	bed->cache.l1_scrub_rate = 0; /* a reader finds what is wrong, not the scrubber */
	kvt_surroundings_init(&bed->surroundings, &bed->cache);
	bed->bytes = bytes;
	snprintf(bed->name, sizeof(bed->name), "kvt-objects-test-%d-%d", (int)getpid(), count++);
	strcpy(bed->folder, "/tmp/kvt-objects-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(bed->folder));
	snprintf(bed->side, sizeof(bed->side), "%s/side", bed->folder);
	snprintf(bed->store, sizeof(bed->store), "%s/store", bed->folder);
	snprintf(bed->catalog, sizeof(bed->catalog), "%s/names", bed->folder);
	snprintf(bed->table, sizeof(bed->table), "%s/generations", bed->folder);
	bed->options = (struct kvt_objects_options){
		.cache = &bed->cache,
		.surroundings = &bed->surroundings,
		.lease_ttl_max_ns = 30 * SECOND,
		.lease_grace_ns = SECOND,
		.leases_max = 64,
		.object_max_bytes = bytes,
	};
}

void bed_use_store(struct bed *bed)
{
	bed->cache.nvme_path = bed->store;
	bed->cache.nvme_capacity = 256 * MIB;
	bed->options.catalog_path = bed->catalog;
	bed->options.generations_path = bed->table;
}

void bed_open(struct bed *bed)
{
	struct kvt_segment_options options = {.name = bed->name,
		.bytes = bed->bytes,
		.side_path = bed->side,
		.longest_lease_ns = bed->options.lease_ttl_max_ns + bed->options.lease_grace_ns,
		.surroundings = &bed->surroundings};
	char why[KVT_REASON_BYTES] = "";

	ck_assert_msg(kvt_segment_open(&options, why, &bed->segment) == KVT_OK, "%s", why);
	bed->options.segment = bed->segment;
	ck_assert_msg(kvt_objects_create(&bed->options, why, &bed->objects) == KVT_OK, "%s", why);
}

void bed_close(struct bed *bed)
{
	kvt_objects_destroy(bed->objects);
	kvt_segment_close(bed->segment);
	bed->objects = NULL;
	bed->segment = NULL;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

void bed_clear(struct bed *bed)
{
	char path[128];

	if (bed->view != NULL)
		munmap((void *)(uintptr_t)bed->view, bed->bytes);
	snprintf(path, sizeof(path), "/dev/shm/%s", bed->name);
	unlink(path);
	snprintf(path, sizeof(path), "/dev/shm/.%s.kvtierd", bed->name);
	unlink(path);
	snprintf(path, sizeof(path), "/dev/shm/.%s.kvtierd-generations", bed->name);
	unlink(path);
	nftw(bed->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void bed_attach(struct bed *bed)
{
	char path[128];
	void *at;
	int fd;

	if (bed->view != NULL)
		return;
	snprintf(path, sizeof(path), "/dev/shm/%s", bed->name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	at = mmap(NULL, bed->bytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	close(fd);
	bed->view = at;
}

struct kvt_object_name name_of(const char *bucket, const char *key)
{
	return (struct kvt_object_name){kvw_slice_of(bucket), kvw_slice_of(key)};
}

/* --- puts ------------------------------------------------------------------------------------- */

static void fill(const struct kvt_segment *segments, uint32_t count, uint64_t seed, uint64_t bytes)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < count; i++)
		for (uint64_t j = 0; j < segments[i].bytes && at < bytes; j++, at++)
			((uint8_t *)segments[i].base)[j] = byte_of(seed, at);
}

enum kvt_status put_begin(struct bed *bed, const char *bucket, const char *key, uint64_t seed,
	uint64_t bytes, struct kvt_object_put **put, struct kvt_checksum *sum)
{
	struct kvt_object_name name = name_of(bucket, key);
	const struct kvt_segment *segments;
	enum kvt_status status;
	uint32_t count;

	status = kvt_object_put_begin(bed->objects, &name, bed->tenant, bytes, put, &segments, &count);
	if (status != KVT_OK)
		return status;
	fill(segments, count, seed, bytes);
	kvt_checksum_segments(segments, count, bytes, sum);
	return KVT_OK;
}

enum kvt_status put(struct bed *bed, const char *bucket, const char *key, uint64_t seed,
	uint64_t bytes, enum kvt_put_outcome *outcome)
{
	enum kvt_put_outcome was = KVT_PUT_STORED;
	struct kvt_object_put *p;
	struct kvt_checksum sum;
	enum kvt_status status;

	status = put_begin(bed, bucket, key, seed, bytes, &p, &sum);
	if (status != KVT_OK)
		return status;
	status = kvt_object_put_end(bed->objects, p, &sum, true, &was);
	if (status == KVT_OK && outcome != NULL)
		*outcome = was;
	return status;
}

/* --- leases ----------------------------------------------------------------------------------- */

struct answer {
	pthread_mutex_t lock;
	pthread_cond_t came;
	bool there;
	struct lease *out;
};

static void answered(void *user, enum kvt_status status, const struct kvt_grant *grant)
{
	struct answer *a = user;

	pthread_mutex_lock(&a->lock);
	EXPECT(!a->there); /* exactly once */
	EXPECT((status == KVT_OK) == (grant != NULL));
	a->there = true;
	a->out->status = status;
	if (grant != NULL) {
		EXPECT(grant->count >= 1 && grant->count <= 16);
		memcpy(a->out->id, grant->id, sizeof(grant->id));
		memcpy(a->out->fragments, grant->fragments,
			grant->count * sizeof(*grant->fragments));
		a->out->count = grant->count;
		a->out->bytes = grant->bytes;
	}
	pthread_cond_signal(&a->came);
	pthread_mutex_unlock(&a->lock);
}

enum kvt_status lease(struct bed *bed, const char *bucket, const char *key, uint64_t timeout_ns,
	uint64_t ttl_ns, struct lease *out)
{
	struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, out};
	struct kvt_object_name name = name_of(bucket, key);
	struct kvt_lease_wish wish = {.timeout_ns = timeout_ns,
		.ttl_ns = ttl_ns,
		.unchecked = bed->unchecked,
		};

	memset(out, 0, sizeof(*out));
	kvt_object_lease(bed->objects, &name, &wish, answered, &a);
	pthread_mutex_lock(&a.lock);
	while (!a.there)
		pthread_cond_wait(&a.came, &a.lock);
	pthread_mutex_unlock(&a.lock);
	return out->status;
}

enum kvt_status release(struct bed *bed, const struct lease *l)
{
	return kvt_object_release(bed->objects, kvw_slice_of(l->id));
}

bool reads(const struct bed *bed, const struct lease *l, uint64_t seed)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < l->count; i++) {
		const struct kvt_segment *f = &l->fragments[i];

		EXPECT(f->arena_offset <= bed->bytes && f->bytes <= bed->bytes - f->arena_offset);
		for (uint64_t j = 0; j < f->bytes; j++, at++)
			if (bed->view[f->arena_offset + j] != byte_of(seed, at))
				return false;
	}
	return at == l->bytes;
}

uint64_t seed_of(const struct bed *bed, const struct lease *l)
{
	uint64_t seed = 0;

	EXPECT(l->count > 0 && l->fragments[0].bytes >= 8);
	for (uint64_t i = 0; i < 8; i++)
		seed |= (uint64_t)bed->view[l->fragments[0].arena_offset + i] << (8 * i);
	return seed;
}

enum kvt_status get(struct bed *bed, const char *bucket, const char *key, uint64_t seed)
{
	const uint64_t longest_ns = bed->options.lease_ttl_max_ns;
	enum kvt_status status;
	bool right, released;
	struct lease l;
	int64_t ends_ns; /* at the earliest */

	ends_ns = kvw_clock_ns() + (int64_t)(longest_ns < 10 * SECOND ? longest_ns : 10 * SECOND);
	status = lease(bed, bucket, key, 5 * SECOND, 10 * SECOND, &l);
	if (status != KVT_OK)
		return status;
	right = reads(bed, &l, seed);
	released = release(bed, &l) == KVT_OK;
	EXPECT((right && released) || kvw_clock_ns() >= ends_ns);
	return KVT_OK;
}

struct kvt_objects_stats stats_of(struct bed *bed)
{
	struct kvt_objects_stats stats;

	kvt_objects_stats(bed->objects, &stats);
	return stats;
}
