/*
 * store.c - an NVMe tier in a test's hands.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store.h"
#include "tiers/tiers.h"

static struct kvt_test_clock *time_of(struct store *s)
{
	return s->shared != NULL ? s->shared : &s->time;
}

static int64_t now_of(void *self)
{
	return time_of(self)->now_ns;
}

static int64_t wall_of(void *self)
{
	return time_of(self)->wall_ns + time_of(self)->now_ns;
}

void store_advance(struct store *s, int64_t ns)
{
	kvt_test_clock_advance(time_of(s), ns);
}

void store_advance_wall(struct store *s, int64_t ns)
{
	time_of(s)->wall_ns += ns;
}

static void keep_log(void *self, uint32_t level, const char *line)
{
	struct store *s = self;

	if (level >= KVT_LOG_WARN)
		(void)snprintf(s->last_log, sizeof(s->last_log), "%s", line);
}

void store_init(struct store *s)
{
	memset(s, 0, sizeof(*s));
	(void)snprintf(s->folder, sizeof(s->folder), "/var/tmp/kvt-tiers-XXXXXX");
	if (mkdtemp(s->folder) == NULL)
		abort();
	s->time.now_ns = 1000000000;
	s->time.wall_ns = 1700000000000000000;
	s->clock = (struct kvt_clock){.now_ns = now_of, .wall_ns = wall_of, .self = s};
	s->surroundings = (struct kvt_surroundings){
		.clock = s->clock,
		.log = keep_log,
		.log_self = s,
	};
	s->config = (struct kvt_config){
		.size = sizeof(s->config),
		.abi = KVT_ABI,
		.threads = KVT_THREADS_CALLER,
		.nvme_path = s->folder,
		.nvme_capacity = 64u << 20,
		.nvme_policy = "lru",
		.nvme_max_chunks = 4096,
		.nvme_io = "threads",
		.nvme_depth = 16,
		.nvme_sync_bytes = 8u << 20,
		.nvme_sync_ns = 1000000000,
		.nvme_direct = 1,
		.clock = &s->clock,
	};
	memset(s->config.fingerprint.bytes, 0xf1, sizeof(s->config.fingerprint.bytes));
}

void store_copy(struct store *s, const struct store *like)
{
	*s = *like;
	s->tier = NULL;
	s->clock.self = s;
	s->surroundings.clock = s->clock;
	s->surroundings.log_self = s;
	s->config.clock = &s->clock;
}

static void on_stored(
	void *self, uint32_t tier, const struct kvt_key *key, const struct kvt_blocks *names)
{
	struct store *s = self;

	(void)key;
	if (tier != KVT_TIER_NVME || names == NULL)
		abort();
	s->stored++;
	s->lmcache_hash = names->has_lmcache_hash ? names->lmcache_hash : 0;
}

static void on_removed(
	void *self, uint32_t tier, const struct kvt_key *key, const struct kvt_blocks *names)
{
	struct store *s = self;

	if (tier != KVT_TIER_NVME || names == NULL || names->count == 0)
		abort();
	s->last_removed = *key;
	s->removed++;
}

static bool has_room(void *self)
{
	return !((struct store *)self)->no_room;
}

enum kvt_status store_open(struct store *s)
{
	struct kvt_tier_options options = {
		.config = &s->config,
		.surroundings = &s->surroundings,
		.watch = {.stored = on_stored, .removed = on_removed, .has_room = has_room, .self = s},
	};

	s->surroundings.wall_ahead_ns = wall_of(s) - now_of(s);
	return kvt_tiers()[0]->create(&options, s->why, &s->tier);
}

void store_close(struct store *s)
{
	if (s->tier != NULL)
		s->tier->ops->destroy(s->tier);
	s->tier = NULL;
}

void remove_tree(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char child[1024];

	while (d != NULL && (e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		(void)snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
		if (unlink(child) != 0)
			remove_tree(child);
	}
	if (d != NULL)
		(void)closedir(d);
	(void)rmdir(path);
}

void store_finish(struct store *s)
{
	store_close(s);
	remove_tree(s->folder);
}

void store_path(struct store *s, const char *name, char *out, size_t size)
{
	int n = snprintf(out, size, "%s/", s->folder);

	for (size_t i = 0; i < sizeof(s->config.fingerprint.bytes); i++)
		n += snprintf(out + n, size - (size_t)n, "%02x", s->config.fingerprint.bytes[i]);
	(void)snprintf(out + n, size - (size_t)n, "/%u/%s", s->config.rank, name);
}

/* --- what keys mean ---------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

struct kvt_key key_of(uint64_t n)
{
	struct kvt_key key;

	for (unsigned i = 0; i < 4; i++) {
		uint64_t word = mix(n * 4 + i + 1);

		memcpy(key.bytes + i * 8, &word, 8);
	}
	return key;
}

uint64_t bytes_of(uint64_t n)
{
	uint64_t x = mix(n ^ 0x5eed);

	return x % 7 == 0 ? 4096 * (1 + x % 60) : 1 + x % (300 * 1024);
}

void fill(uint64_t n, uint8_t *out, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = mix(n * 0x9e3779b97f4a7c15u + i);

		memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

void must_be(uint64_t n, const uint8_t *bytes, uint64_t len)
{
	for (uint64_t i = 0; i < len; i += 8) {
		uint64_t word = mix(n * 0x9e3779b97f4a7c15u + i);

		if (memcmp(bytes + i, &word, len - i < 8 ? len - i : 8) != 0) {
			fprintf(stderr, "WRONG BYTES: chunk %llu at %llu of %llu\n",
				(unsigned long long)n, (unsigned long long)i,
				(unsigned long long)len);
			abort();
		}
	}
}

/* --- requests ---------------------------------------------------------------------------------- */

static void on_done(struct kvt_tier_request *r)
{
	struct wish *w = r->user;

	if (w->done)
		abort(); /* given back twice */
	w->done = true;
	w->had_names = r->names != NULL;
	if (r->verb == KVT_TIER_READ && r->status == KVT_OK) {
		struct kvt_checksum sum;

		must_be(w->n, w->bytes, w->room);
		kvt_checksum_segments(r->segments, r->segment_count, r->bytes, &sum);
		if (!kvt_checksum_equal(&sum, &r->checksum))
			abort();
		if (w->bytes[w->room] != 0xee)
			abort(); /* wrote beyond the segment */
	}
}

struct wish *wish_new(struct store *s, enum kvt_tier_verb verb, uint64_t n, uint64_t cut)
{
	struct wish *w = calloc(1, sizeof(*w));
	void *p = NULL;

	if (w == NULL)
		abort();
	w->store = s;
	w->n = n;
	w->key = key_of(n);
	w->room = bytes_of(n) + s->more_bytes;
	w->request = (struct kvt_tier_request){
		.verb = verb,
		.keys = &w->key,
		.key_count = 1,
		.done = on_done,
		.user = w,
	};
	if (verb != KVT_TIER_READ && verb != KVT_TIER_WRITE)
		return w;
	if (posix_memalign(&p, 65536, w->room + 4096) != 0)
		abort();
	w->bytes = p;
	memset(p, 0xee, w->room + 4096);
	if (verb == KVT_TIER_WRITE)
		fill(n, w->bytes, w->room);
	if (cut == 0 || cut >= w->room)
		cut = w->room;
	w->segments[0] = (struct kvt_segment){.base = w->bytes, .bytes = cut};
	w->segments[1] = (struct kvt_segment){.base = w->bytes + cut, .bytes = w->room - cut};
	w->request.segments = w->segments;
	w->request.segment_count = cut == w->room ? 1 : 2;
	w->request.bytes = w->room;
	w->item = (struct kvt_item){.size = sizeof(w->item), .key = w->key, .bytes = w->room};
	w->item.tokens = 256;
	if (verb == KVT_TIER_WRITE) {
		w->request.item = &w->item;
		kvt_checksum_segments(
			w->segments, w->request.segment_count, w->room, &w->request.checksum);
	}
	return w;
}

void wish_free(struct wish *w)
{
	if (w != NULL)
		free(w->bytes);
	free(w);
}

void store_step(struct store *s, unsigned rounds)
{
	int64_t next;

	for (unsigned i = 0; i < rounds; i++) {
		(void)s->tier->ops->step(s->tier, 0, &next);
		store_advance(s, 1000);
	}
}

enum kvt_status wish_wait(struct store *s, struct wish *w)
{
	int64_t next;

	for (unsigned rounds = 0; !w->done; rounds++) {
		/* Files in memory are never waited for. */
		(void)s->tier->ops->step(s->tier, s->config.io != NULL ? 0 : 1000000, &next);
		store_advance(s, 1000000);
		if (rounds > 1000000)
			abort(); /* never given back */
	}
	return (enum kvt_status)w->request.status;
}

static enum kvt_status one(struct store *s, struct wish *w)
{
	enum kvt_status status;

	s->tier->ops->submit(s->tier, &w->request);
	status = wish_wait(s, w);
	wish_free(w);
	return status;
}

enum kvt_status store_put(struct store *s, uint64_t n)
{
	return one(s, wish_new(s, KVT_TIER_WRITE, n, 0));
}

enum kvt_status store_put_item(struct store *s, uint64_t n, struct kvt_item *item, bool announce)
{
	struct wish *w = wish_new(s, KVT_TIER_WRITE, n, 0);

	w->request.item = item;
	w->request.announce = announce;
	return one(s, w);
}

enum kvt_status store_get(struct store *s, uint64_t n)
{
	return one(s, wish_new(s, KVT_TIER_READ, n, 0));
}

enum kvt_status store_erase(struct store *s, uint64_t n)
{
	return one(s, wish_new(s, KVT_TIER_ERASE, n, 0));
}

enum kvt_status store_flush(struct store *s)
{
	struct wish *w = wish_new(s, KVT_TIER_FLUSH, 0, 0);

	w->request.key_count = 0;
	return one(s, w);
}

bool store_has(struct store *s, uint64_t n)
{
	struct kvt_key key = key_of(n);

	return s->tier->ops->match(s->tier, &key, 1) == 1;
}

struct kvt_tier_stats store_stats(struct store *s)
{
	struct kvt_tier_stats stats = {0};

	s->tier->ops->stats(s->tier, &stats);
	return stats;
}
