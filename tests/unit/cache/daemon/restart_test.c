/*
 * restart_test.c - a daemon that ends and comes again: in peace, and by SIGKILL in the middle of
 * puts, replacements and leases. Clients read under their leases all the while.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bed.h"
#include "core/breaker.h"
#include "tests/unit/suite.h"

#define KEYS  24
#define NOTES 4096
#define LIVES 6

static struct bed bed;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void show(void *user, const struct kvt_object_entry *entry)
{
	(void)entry;
	++*(size_t *)user;
}

START_TEST(after_a_clean_end_all_is_there_at_once)
{
	size_t listed = 0;
	char key[16];
	bool more;

	bed_init(&bed, 16 * MIB);
	bed_use_store(&bed);
	bed_open(&bed);
	for (uint64_t i = 0; i < 12; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "b", key, i, MIB, NULL), KVT_OK);
	}
	bed_close(&bed);
	bed_open(&bed);
	bed_attach(&bed);
	ck_assert_int_eq(stats_of(&bed).quiet_until_wall_ns, 0);
	ck_assert_uint_eq(kvt_objects_list(bed.objects, KVW_SLICE("b"), KVW_SLICE(""), 100, show,
				  &listed, &more),
		12);
	for (uint64_t i = 0; i < 12; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(get(&bed, "b", key, i), KVT_OK);
	}
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

/* As requests do that fail one after another. */
static void trip_store(struct bed *b)
{
	struct kvt *k = kvt_objects_cache(b->objects);
	struct kvt_breaker *breaker = &k->lower[0].breaker;
	struct kvt_job job = {.probe = false};

	pthread_mutex_lock(&k->lock);
	for (uint32_t i = 0; breaker->state == KVT_BREAKER_CLOSED && i < 100; i++) {
		job.round = breaker->round;
		(void)kvt_breaker_end(breaker, &job, KVT_OUTCOME_BAD, kvt_clock(k));
	}
	ck_assert_int_eq(breaker->state, KVT_BREAKER_OPEN);
	pthread_mutex_unlock(&k->lock);
}

/* An engine that heard for sure that its mark is gone would make another one, and lose all that it stored. */
START_TEST(what_a_paused_store_has_is_not_missing_for_sure)
{
	struct lease l;

	bed_init(&bed, 8 * MIB);
	bed_use_store(&bed);
	bed.cache.breaker_open_ns = SECOND;
	bed_open(&bed);
	ck_assert_int_eq(put(&bed, "b", "mark", 1, 128, NULL), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "mark 2", 2, 128, NULL), KVT_OK);
	bed_close(&bed);
	bed_open(&bed);
	bed_attach(&bed);
	trip_store(&bed);
	ck_assert_int_eq(lease(&bed, "b", "mark", 5 * SECOND, SECOND, &l), KVT_ECANCELED);
	ck_assert_int_eq(lease(&bed, "b", "mark", 0, SECOND, &l), KVT_ECANCELED);
	ck_assert_int_eq(lease(&bed, "b", "none", 5 * SECOND, SECOND, &l), KVT_MISS);
	ck_assert_uint_eq(stats_of(&bed).lease_misses, 3);
	for (int64_t until = now() + 60 * (int64_t)SECOND; now() < until; usleep(10000))
		if (get(&bed, "b", "mark", 1) == KVT_OK)
			break;
	ck_assert_int_eq(get(&bed, "b", "mark 2", 2), KVT_OK);
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

START_TEST(what_a_store_of_another_process_may_have_is_not_missing_for_sure)
{
	static struct bed owner;
	struct lease l;

	bed_init(&owner, 4 * MIB);
	bed_use_store(&owner);
	bed_init(&bed, 4 * MIB);
	bed.cache = owner.cache;
	bed.options.generations_path = owner.options.generations_path;
	bed.cache.nvme_lock_wait_ns = 0;
	bed.cache.breaker_open_ns = SECOND / 50;
	bed_open(&owner);
	ck_assert_int_eq(put(&owner, "b", "mark", 1, 128, NULL), KVT_OK);
	ck_assert_int_eq(put(&owner, "b", "put here", 1, 128, NULL), KVT_OK);
	bed_open(&bed);
	bed_attach(&bed);
	ck_assert_int_eq(lease(&bed, "b", "mark", SECOND, SECOND, &l), KVT_ECANCELED);
	ck_assert_int_eq(put(&bed, "b", "put here", 9, 128, NULL), KVT_OK);
	ck_assert_int_eq(put(&owner, "b", "changed there", 1, 128, NULL), KVT_OK);
	ck_assert_int_eq(kvt_drain(kvt_objects_cache(owner.objects), 5 * SECOND), KVT_OK);
	ck_assert_int_eq(put(&owner, "b", "changed there", 2, 128, NULL), KVT_OK);
	bed_close(&owner);
	for (int64_t until = now() + 60 * (int64_t)SECOND; now() < until; usleep(10000))
		if (get(&bed, "b", "mark", 1) == KVT_OK)
			break;
	ck_assert_int_eq(get(&bed, "b", "mark", 1), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "none", SECOND, SECOND, &l), KVT_MISS);
	ck_assert_int_eq(get(&bed, "b", "put here", 9), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "changed there", 2), KVT_OK);
	bed_close(&bed);
	bed_clear(&owner);
	bed_clear(&bed);
}
END_TEST

START_TEST(what_a_silent_shared_tier_may_have_is_not_missing_for_sure)
{
	struct lease l;

	bed_init(&bed, 4 * MIB);
	bed.cache.l2_url = "redis://127.0.0.1:1"; /* nothing listens there */
	bed_open(&bed);
	for (int i = 0; i < 10; i++) /* first it does not answer, then it is left alone */
		ck_assert_int_eq(lease(&bed, "b", "mark", SECOND, SECOND, &l), KVT_ECANCELED);
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

START_TEST(a_bucket_has_its_quota_on_disk)
{
	static const struct kvt_bucket_limit limits[] = {{"small", 0, 2 * MIB + MIB / 2}};
	char key[16];
	int left = 0;

	bed_init(&bed, 16 * MIB);
	bed_use_store(&bed);
	bed.options.limits = limits;
	bed.options.limit_count = 1;
	bed_open(&bed);
	bed_attach(&bed);
	for (uint64_t i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "small", key, i, MIB, NULL), KVT_OK);
		ck_assert_int_eq(put(&bed, "large", key, i, MIB, NULL), KVT_OK);
	}
	for (uint64_t i = 0; i < 6; i++) { /* in memory it has none */
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(get(&bed, "small", key, i), KVT_OK);
	}
	bed_close(&bed);
	bed_open(&bed);
	for (uint64_t i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(get(&bed, "large", key, i), KVT_OK);
		left += get(&bed, "small", key, i) == KVT_OK;
	}
	ck_assert_int_eq(left, 2);
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

static int left_of(const char *prefix, int count)
{
	char key[16];
	int left = 0;

	for (int i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s%d", prefix, i);
		left += get(&bed, "b", key, (uint64_t)i) == KVT_OK;
	}
	return left;
}

#define MODEL "0123456789abcdef0123456789abcdef"
#define OTHER "1123456789abcdef0123456789abcdef"

/* Name of an engine's chunk. */
static const char *chunk(int n, const char *model)
{
	static char name[98];

	snprintf(name, sizeof(name), "%064x-%s", (unsigned)n, model);
	return name;
}

static void put_chunks(const struct kvt_tenant *tenant, const char *model, int first, int count)
{
	bed.tenant = tenant;
	for (int n = first; n < first + count; n++)
		ck_assert_int_eq(put(&bed, "b", chunk(n, model), (uint64_t)n, MIB / 2, NULL), KVT_OK);
}

static int chunks_left(const char *model, int first, int count)
{
	int left = 0;

	for (int n = first; n < first + count; n++)
		left += get(&bed, "b", chunk(n, model), (uint64_t)n) == KVT_OK;
	return left;
}

/* Bytes of a tenant's account in a tier. */
static double account_of(const struct kvt_tenant *tenant, const char *tier)
{
	char sample[128], *text, *at;
	int n = snprintf(sample, sizeof(sample), "kvtier_tenant_used_bytes{tier=\"%s\",tenant=\"", tier);
	double bytes = 0;

	for (size_t i = 0; i < sizeof(tenant->bytes); i++)
		n += snprintf(sample + n, sizeof(sample) - (size_t)n, "%02x", tenant->bytes[i]);
	ck_assert_int_eq(kvt_metrics(kvt_objects_cache(bed.objects), &text), KVT_OK);
	at = strstr(text, sample);
	if (at != NULL)
		bytes = strtod(at + n + 3, NULL);
	kvt_text_free(text);
	return bytes;
}

/* Changes are there after a restart, and an erased tenant's objects leave its account by
 * themselves: the cache's thread frees them. */
START_TEST(generations_are_kept)
{
	struct kvt_table_ask *ask = calloc(1, sizeof(*ask));
	struct kvt_slot_change last;
	struct kvt_tenant flood;
	uint8_t id[KVT_TABLE_ID_BYTES];
	uint32_t sum;
	FILE *file;
	int byte;

	kvt_tenant_of("flood", 5, &flood);
	bed_init(&bed, 32 * MIB);
	bed_use_store(&bed);
	bed.cache.tenant_l1_bytes = 8 * MIB;
	bed.cache.tenant_metrics = 8;
	bed_open(&bed);
	bed_attach(&bed);
	put_chunks(&flood, MODEL, 30, 4);
	put_chunks(NULL, MODEL, 10, 2);
	ask->raise = kvt_tenant_slot(&flood);
	ask->tenant = &flood;
	ck_assert_int_eq(kvt_objects_raise(bed.objects, ask), KVT_OK);
	ck_assert_int_eq(chunks_left(MODEL, 30, 4), 0);
	ck_assert_int_eq(chunks_left(MODEL, 10, 2), 2);
	while (account_of(&flood, "l1") >= 1)
		usleep(1000);
	for (uint32_t slot = 0; slot < KVT_CHANGES_MOST + 10; slot++) {
		ask->raise = slot;
		ask->tenant = NULL;
		ck_assert_int_eq(kvt_objects_raise(bed.objects, ask), KVT_OK);
	}
	ck_assert_int_eq(kvt_objects_table(bed.objects, ask), KVT_OK);
	ck_assert(ask->more);
	memcpy(id, ask->now, sizeof(id));
	memcpy(ask->id, id, sizeof(id));
	ask->after = ask->changes[ask->change_count - 1].number;
	ck_assert_int_eq(kvt_objects_table(bed.objects, ask), KVT_OK);
	ck_assert(!ask->more);
	last = ask->changes[ask->change_count - 1];
	sum = ask->sum;
	bed_close(&bed);
	bed_open(&bed);
	memcpy(ask->id, id, sizeof(id));
	ask->after = last.number - 1;
	ck_assert_int_eq(kvt_objects_table(bed.objects, ask), KVT_OK);
	ck_assert_mem_eq(ask->now, id, sizeof(id));
	ck_assert_uint_eq(ask->change_count, 1);
	ck_assert_uint_eq(ask->changes[0].number, last.number);
	ck_assert_uint_eq(ask->changes[0].slot, last.slot);
	ck_assert_uint_eq(ask->sum, sum);
	bed_close(&bed);
	file = fopen(bed.table, "r+"); /* damaged: a new table */
	ck_assert_ptr_nonnull(file);
	(void)fseek(file, 16 * 40, SEEK_SET);
	byte = fgetc(file);
	(void)fseek(file, 16 * 40, SEEK_SET);
	(void)fputc(byte ^ 0xff, file);
	(void)fclose(file);
	bed_open(&bed);
	ck_assert_int_eq(kvt_objects_table(bed.objects, ask), KVT_OK);
	ck_assert_mem_ne(ask->now, id, sizeof(id));
	ck_assert_uint_eq(ask->change_count, 0);
	bed_close(&bed);
	bed_clear(&bed);
	free(ask);
}
END_TEST

/* On disk, over restarts of the daemon; and an erase of the bucket reaches its tenants' objects. */
START_TEST(a_tenant_has_its_quota_on_disk)
{
	struct kvt_tenant tenants[2];
	char key[16];
	size_t erased;

	kvt_tenant_of("flood", 5, &tenants[0]);
	kvt_tenant_of("quiet", 5, &tenants[1]);
	bed_init(&bed, 32 * MIB);
	bed_use_store(&bed);
	bed.cache.tenant_nvme_bytes = 2 * MIB + MIB / 2;
	bed_open(&bed);
	bed_attach(&bed);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 4; i++) {
			bed.tenant = &tenants[0];
			snprintf(key, sizeof(key), "f%d", 4 * round + i);
			ck_assert_int_eq(
				put(&bed, "b", key, (uint64_t)(4 * round + i), MIB, NULL), KVT_OK);
		}
		bed.tenant = &tenants[1];
		snprintf(key, sizeof(key), "q%d", round);
		if (round < 2)
			ck_assert_int_eq(put(&bed, "b", key, (uint64_t)round, MIB, NULL), KVT_OK);
		bed_close(&bed);
		bed_open(&bed);
	}
	ck_assert_int_eq(left_of("q", 2), 2);
	ck_assert_int_eq(left_of("f", 12), 2);
	ck_assert_int_eq(kvt_bucket_erase(bed.objects, KVW_SLICE("b"), NULL, &erased), KVT_OK);
	ck_assert_int_eq(left_of("q", 2) + left_of("f", 12), 0);
	bed_close(&bed);
	bed_open(&bed);
	ck_assert_int_eq(left_of("q", 2) + left_of("f", 12), 0);
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

START_TEST(leases_that_are_out_keep_the_next_daemon_quiet)
{
	struct lease l, none;
	int64_t begun_ns;

	bed_init(&bed, 8 * MIB);
	bed_use_store(&bed);
	bed.options.lease_grace_ns = SECOND / 5;
	bed_open(&bed);
	bed_attach(&bed);
	ck_assert_int_eq(put(&bed, "b", "k", 1, 3 * MIB, NULL), KVT_OK);
	begun_ns = now();
	ck_assert_int_eq(lease(&bed, "b", "k", 0, 5 * SECOND, &l), KVT_OK);
	bed_close(&bed);
	bed_open(&bed);
	ck_assert_int_ne(stats_of(&bed).quiet_until_wall_ns, 0);
	/* not even from the store: that would write into the segment */
	ck_assert_int_eq(lease(&bed, "b", "k", SECOND, SECOND, &none), KVT_ECANCELED);
	ck_assert_int_eq(put(&bed, "b", "x", 2, MIB, NULL), KVT_BUSY);
	while (put(&bed, "b", "x", 2, MIB, NULL) == KVT_BUSY) {
		ck_assert(reads(&bed, &l, 1));
		usleep(2000);
	}
	ck_assert_int_ge(now() - begun_ns, 5 * (int64_t)SECOND);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_OK);
	ck_assert_int_eq(release(&bed, &l), KVT_MISS); /* another daemon's */
	bed_close(&bed);
	bed_clear(&bed);
}
END_TEST

/* --- killed ----------------------------------------------------------------------------------- */

/* A lease that a client has, written down before it reads. */
struct note {
	_Atomic int64_t ends_ns; /* TTL, without grace; 0: given back */
	struct lease lease;
	uint64_t seed;
};

/* What the daemons' lives leave to the judging process; shared memory. */
struct diary {
	uint32_t begun[KEYS], acknowledged[KEYS]; /* versions */
	_Atomic uint64_t notes, hits, misses, puts, busy;
	struct note at[NOTES];
};

static uint64_t seed_for(uint32_t key, uint32_t version)
{
	return (uint64_t)(key + 1) << 32 | version;
}

static uint64_t size_for(uint32_t key)
{
	return 1000 + key * 40000;
}

static void put_next(struct diary *d, uint32_t key)
{
	uint32_t version = ++d->begun[key];
	enum kvt_status status;
	char text[16];

	snprintf(text, sizeof(text), "k%d", (int)key);
	status = put(&bed, "b", text, seed_for(key, version), size_for(key), NULL);
	EXPECT(status == KVT_OK || status == KVT_BUSY || status == KVT_FULL);
	if (status == KVT_OK)
		d->acknowledged[key] = version;
	d->puts += status == KVT_OK;
	d->busy += status == KVT_BUSY;
}

/* A lease that is written down and never given back. */
static void lease_next(struct diary *d, uint32_t key, bool known[KEYS])
{
	const uint64_t ttl_ns = SECOND / 10 + (uint64_t)lrand48() % (SECOND / 5);
	int64_t begun_ns = now();
	struct lease l;
	struct note *note;
	char text[16];

	snprintf(text, sizeof(text), "k%d", (int)key);
	if (lease(&bed, "b", text, SECOND, ttl_ns, &l) != KVT_OK) {
		d->misses++;
		return;
	}
	d->hits++;
	note = &d->at[d->notes % NOTES];
	note->lease = l;
	note->seed = seed_of(&bed, &l);
	note->ends_ns = begun_ns + (int64_t)ttl_ns;
	d->notes++;
	EXPECT(note->seed >> 32 == key + 1);
	EXPECT((uint32_t)note->seed <= d->begun[key]);
	EXPECT(l.bytes == size_for(key));
	EXPECT(reads(&bed, &l, note->seed));
	if (known[key]) /* put in this life: the very version */
		EXPECT((uint32_t)note->seed == d->acknowledged[key]);
	if (lrand48() % 2 == 0) {
		note->ends_ns = 0;
		EXPECT(release(&bed, &l) == KVT_OK || now() - begun_ns > (int64_t)ttl_ns);
	}
}

static void live(struct diary *d, int life)
{
	bool known[KEYS] = {false};

	srand48(life);
	bed_open(&bed);
	bed_attach(&bed);
	for (;;) {
		uint32_t key = (uint32_t)lrand48() % KEYS, before = d->acknowledged[key];

		if (lrand48() % 2 == 0) {
			put_next(d, key);
			known[key] = d->acknowledged[key] != before;
		} else {
			lease_next(d, key, known);
		}
	}
}

/* Reads under all leases that are not over, as the clients that have them would. */
static size_t read_under_leases(struct diary *d)
{
	uint64_t notes = d->notes;
	size_t checked = 0;

	for (uint64_t i = notes > NOTES ? notes - NOTES : 0; i < notes; i++) {
		struct note *note = &d->at[i % NOTES];
		struct lease l = note->lease;
		uint64_t seed = note->seed;

		if (note->ends_ns <= now())
			continue;
		/* else its time passed while it was read, or the note is another one by now */
		EXPECT(reads(&bed, &l, seed) || note->ends_ns <= now() || i + NOTES <= d->notes);
		checked++;
	}
	return checked;
}

static pid_t begin_life(struct diary *d, int life)
{
	pid_t child = fork();

	if (child == 0)
		live(d, life);
	ck_assert_int_gt(child, 0);
	return child;
}

/* A slow machine needs more lives. */
static bool is_enough(const struct diary *d, size_t checked)
{
	return d->puts > 100 && d->hits > 100 && checked > 1000;
}

START_TEST(killed_again_and_again_under_clients_that_read)
{
	struct diary *d =
		mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t checked = 0;
	int status;

	ck_assert_ptr_ne(d, MAP_FAILED);
	bed_init(&bed, 4 * MIB); /* less than all objects need */
	bed_use_store(&bed);
	bed.options.leases_max = 100000;
	bed.options.lease_ttl_max_ns = SECOND / 2;
	bed.options.lease_grace_ns = SECOND / 20;
	bed_open(&bed);
	bed_attach(&bed); /* once, as stock clients do */
	bed_close(&bed);
	srand48(3);
	for (int life = 0; life < LIVES || (life < 10 * LIVES && !is_enough(d, checked)); life++) {
		pid_t child = begin_life(d, life);
		int64_t until_ns = now() + (int64_t)(SECOND / 2 + (uint64_t)lrand48() % SECOND);

		while (now() < until_ns) {
			checked += read_under_leases(d);
			ck_assert_msg(waitpid(child, &status, WNOHANG) == 0, "life %d ended", life);
		}
		ck_assert_int_eq(kill(child, SIGKILL), 0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
	}
	printf("puts %llu, busy %llu, hits %llu, misses %llu, read under leases %zu\n",
		(unsigned long long)d->puts, (unsigned long long)d->busy,
		(unsigned long long)d->hits, (unsigned long long)d->misses, checked);
	ck_assert(is_enough(d, checked));
	bed_clear(&bed);
	munmap(d, sizeof(*d));
}
END_TEST

START_TEST(what_was_replaced_does_not_come_back)
{
	int old = 0, new = 0, gone = 0, status;
	struct lease l;

	bed_init(&bed, 4 * MIB);
	bed_use_store(&bed);
	bed.options.lease_ttl_max_ns = SECOND / 100;
	bed.options.lease_grace_ns = SECOND / 100;
	bed_open(&bed);
	bed_attach(&bed);
	bed_close(&bed);
	for (uint64_t i = 1; i <= 20; i++) {
		pid_t child = fork();

		if (child == 0) {
			bed_open(&bed);
			EXPECT(put(&bed, "b", "k", 2 * i, MIB, NULL) == KVT_OK);
			EXPECT(kvt_drain(kvt_objects_cache(bed.objects), 5 * SECOND) == KVT_OK);
			EXPECT(put(&bed, "b", "k", 2 * i + 1, MIB, NULL) == KVT_OK);
			kill(getpid(), SIGKILL);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFSIGNALED(status));
		bed_open(&bed);
		if (lease(&bed, "b", "k", SECOND, SECOND, &l) != KVT_OK) {
			gone++;
		} else {
			old += seed_of(&bed, &l) == 2 * i;
			new += seed_of(&bed, &l) == 2 * i + 1;
			ck_assert_int_eq(release(&bed, &l), KVT_OK);
		}
		bed_close(&bed);
	}
	printf("old %d new %d gone %d\n", old, new, gone);
	ck_assert_int_eq(old, 0);
	bed_clear(&bed);
}
END_TEST

/* An object is replaced while another daemon owns the store, which has its former bytes. */
START_TEST(what_was_replaced_while_the_store_is_another_ones_does_not_come_back)
{
	static struct bed owner;
	struct lease l;
	int status, go[2];
	char byte = 0;
	pid_t child;

	bed_init(&bed, 4 * MIB);
	bed_use_store(&bed);
	bed.cache.nvme_lock_wait_ns = 0;
	bed.options.lease_ttl_max_ns = SECOND / 100;
	bed.options.lease_grace_ns = SECOND / 100;
	child = fork();
	if (child == 0) { /* the old bytes are on disk, under the same key */
		bed_open(&bed);
		EXPECT(put(&bed, "b", "k", 2, MIB, NULL) == KVT_OK);
		EXPECT(kvt_drain(kvt_objects_cache(bed.objects), 5 * SECOND) == KVT_OK);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	/* Before there are threads: ThreadSanitizer does not let a child of theirs have its own. */
	ck_assert_int_eq(pipe(go), 0);
	child = fork();
	if (child == 0) {
		EXPECT(read(go[0], &byte, 1) == 1);
		bed_open(&bed);
		EXPECT(put(&bed, "b", "k", 3, MIB, NULL) == KVT_OK);
		EXPECT(put(&bed, "b", "k", 4, MIB, NULL) == KVT_OK);
		kill(getpid(), SIGKILL);
	}
	bed_init(&owner, 4 * MIB);
	owner.cache = bed.cache;
	bed_open(&owner);
	ck_assert_int_eq(write(go[1], &byte, 1), 1);
	close(go[0]);
	close(go[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	bed_open(&bed); /* the owner is still there */
	bed_close(&bed);
	bed_close(&owner);
	bed_open(&bed);
	bed_attach(&bed);
	ck_assert_int_ne(lease(&bed, "b", "k", SECOND, SECOND, &l), KVT_OK);
	bed_close(&bed);
	bed_clear(&owner);
	bed_clear(&bed);
}
END_TEST

/* As stock LMCache's probe object, which has other bytes each time. */
START_TEST(small_objects_stay_in_memory)
{
	struct kvt_table_ask *ask = calloc(1, sizeof(*ask));
	enum kvt_put_outcome outcome;
	struct lease l;

	bed_init(&bed, 8 * MIB);
	bed_use_store(&bed);
	bed.options.memory_only_bytes = 65536;
	bed_open(&bed);
	bed_attach(&bed);
	for (uint64_t i = 0; i < 100; i++) {
		ck_assert_int_eq(put(&bed, "b", "probe", i, 65536 - i, &outcome), KVT_OK);
		ck_assert_int_eq(outcome, i == 0 ? KVT_PUT_STORED : KVT_PUT_REPLACED);
		ck_assert_int_eq(get(&bed, "b", "probe", i), KVT_OK);
	}
	ck_assert_int_eq(put(&bed, "b", "large", 1, 65537, NULL), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "shrinks", 2, 65537, NULL), KVT_OK);
	ck_assert_int_eq(kvt_drain(kvt_objects_cache(bed.objects), 5 * SECOND), KVT_OK);
	ck_assert_int_eq(kvt_objects_table(bed.objects, ask), KVT_OK);
	ck_assert_uint_eq(ask->change_count, 0);
	ck_assert_int_eq(put(&bed, "b", "shrinks", 3, 100, NULL), KVT_OK);
	ck_assert_int_eq(kvt_objects_table(bed.objects, ask), KVT_OK);
	ck_assert_uint_eq(ask->change_count, 1);
	bed_close(&bed);
	bed_open(&bed);
	ck_assert_int_eq(lease(&bed, "b", "probe", SECOND, SECOND, &l), KVT_MISS);
	ck_assert_int_eq(lease(&bed, "b", "shrinks", SECOND, SECOND, &l), KVT_MISS);
	ck_assert_int_eq(get(&bed, "b", "large", 1), KVT_OK);
	bed_close(&bed);
	bed_clear(&bed);
	free(ask);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("restart");

	tcase_set_timeout(cases, 280);
	tcase_add_test(cases, after_a_clean_end_all_is_there_at_once);
	tcase_add_test(cases, what_a_paused_store_has_is_not_missing_for_sure);
	tcase_add_test(cases, what_a_store_of_another_process_may_have_is_not_missing_for_sure);
	tcase_add_test(cases, what_a_silent_shared_tier_may_have_is_not_missing_for_sure);
	tcase_add_test(cases, a_bucket_has_its_quota_on_disk);
	tcase_add_test(cases, a_tenant_has_its_quota_on_disk);
	tcase_add_test(cases, generations_are_kept);
	tcase_add_test(cases, leases_that_are_out_keep_the_next_daemon_quiet);
	tcase_add_test(cases, killed_again_and_again_under_clients_that_read);
	tcase_add_test(cases, what_was_replaced_does_not_come_back);
	tcase_add_test(cases, what_was_replaced_while_the_store_is_another_ones_does_not_come_back);
	tcase_add_test(cases, small_objects_stay_in_memory);
	return run_tcase("cache/daemon/restart", cases);
}
