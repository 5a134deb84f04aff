/*
 * faults_test.c - the tiered-storage tier and a daemon that is late, broken, lying or gone.
 *
 * Whatever the daemon does, a read gives the bytes that were put under that key or none; the tier
 * goes on when the daemon does.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kvtierd_scene.h"
#include "tests/unit/suite.h"

static struct fake_daemon the_daemon;
static struct fake_faults *const faults = &the_daemon.faults;

#define MS       INT64_C(1000000)
#define STALL_MS 60000 /* an answer that comes when the test says so */

static void open_scene(struct scene *s, int64_t deadline_ns)
{
	fake_start(&the_daemon);
	scene_init(s, &the_daemon);
	s->config.l2_deadline_ns = (uint64_t)deadline_ns;
	scene_open(s);
}

static void end_scene(struct scene *s)
{
	scene_close(s);
	fake_stop(&the_daemon);
}

/* The object of a chunk, by the beginning of its name. */
static const char *text_of(uint64_t n)
{
	static char text[33];
	struct kvt_key key = scene_key(n);

	for (size_t i = 0; i < 16; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", key.bytes[i]);
	return text;
}

/* --- time: limits pass on the clock of the test, however slow the machine is --------------------- */

/* Steps until the daemon has got a request that it answers late. */
static void until_late(struct scene *s)
{
	while (the_daemon.late == 0)
		scene_step(s, 1);
}

/* A lease that comes after its read has ended goes back. */
START_TEST(test_late_lease)
{
	struct kvtierd_wish *w;
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	atomic_store(&faults->late_ms, STALL_MS);
	w = wish_get(&s, 1, 5000 * MS);
	wish_submit(&s, w);
	until_late(&s);
	s.ahead_ns += 5000 * MS;
	ck_assert_int_eq(wish_end(&s, w), KVT_MISS);
	atomic_store(&faults->late_ms, 0);
	while (the_daemon.leases == 0)
		scene_step(&s, 1);
	scene_wait_leases(&s, 0);
	ck_assert_int_eq(the_daemon.releases, the_daemon.leases);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	end_scene(&s);
}
END_TEST

/* A daemon that does not answer is a failure, for all that wait for it, until it answers again. */
START_TEST(test_stalled)
{
	struct kvtierd_wish *wishes[8];
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	atomic_store(&faults->late_ms, STALL_MS);
	for (int i = 0; i < 8; i++) {
		wishes[i] = wish_get(&s, 1, 0);
		wish_submit(&s, wishes[i]);
	}
	until_late(&s);
	s.ahead_ns += 10000 * MS;
	while (strstr(scene_stats(&s).reason, "does not answer") == NULL)
		scene_step(&s, 1);
	s.ahead_ns += 10000 * MS; /* twice l2.deadline ends what has no deadline of its own */
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(wish_end(&s, wishes[i]), KVT_EIO);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_BROKEN);
	ck_assert(strstr(scene_stats(&s).reason, "does not answer") != NULL);
	atomic_store(&faults->late_ms, 0);
	while (scene_get(&s, 1) != KVT_OK)
		;
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_WORKS);
	end_scene(&s);
}
END_TEST

/* A lease that was over before the bytes were copied is of no use. */
START_TEST(test_lease_that_ends)
{
	struct kvtierd_wish *w;
	struct scene s;

	open_scene(&s, 100000 * MS);
	s.config.l2_lease_ns = 20000000000;
	scene_close(&s);
	scene_open(&s);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	atomic_store(&faults->late_ms, STALL_MS);
	w = wish_get(&s, 1, 0);
	wish_submit(&s, w);
	until_late(&s);
	s.ahead_ns += 21000 * MS;
	atomic_store(&faults->late_ms, 0);
	ck_assert_int_eq(wish_end(&s, w), KVT_MISS);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	/* One that was kept beyond its time is not used either. */
	ck_assert_int_eq(scene_erase(&s, 2), KVT_OK);
	end_scene(&s);
}
END_TEST

/* Stock daemons wait before they say that something is missing: a probe gives them no time. */
START_TEST(test_slow_misses)
{
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	atomic_store(&faults->miss_wait_ms, 5000);
	the_daemon.waited = 0;
	ck_assert_uint_eq(scene_probe(&s, 2, 50, NULL), 0);
	ck_assert_int_eq(the_daemon.waited, 0);
	end_scene(&s);
}
END_TEST

/* --- connections ------------------------------------------------------------------------------ */

START_TEST(test_closed_connections)
{
	struct scene s;

	open_scene(&s, 10000 * MS);
	for (int after = 1; after <= 3; after++) {
		atomic_store(&faults->close_after, after);
		for (uint64_t n = 1; n <= 10; n++) {
			ck_assert_int_eq(scene_put(&s, n), KVT_OK);
			ck_assert_int_eq(scene_get(&s, n), KVT_OK);
		}
	}
	atomic_store(&faults->close_after, 0);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	fake_hang_up(&the_daemon);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	/* Once, a kept connection may be at its end; twice is a failure. */
	scene_wait_leases(&s, 0);
	atomic_store(&faults->drop, 1);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	scene_wait_leases(&s, 0);
	atomic_store(&faults->drop, 2);
	ck_assert_int_eq(scene_get(&s, 1), KVT_EIO);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	end_scene(&s);
}
END_TEST

START_TEST(test_refused_connections)
{
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	fake_deafen(&the_daemon);
	ck_assert_int_eq(scene_get(&s, 1), KVT_EIO);
	ck_assert_int_eq(scene_put(&s, 2), KVT_EIO);
	ck_assert_int_eq(scene_erase(&s, 1), KVT_EIO);
	ck_assert(strstr(scene_stats(&s).reason, "refused") != NULL);
	fake_listen(&the_daemon);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	end_scene(&s);
}
END_TEST

START_TEST(test_broken_answers)
{
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	scene_wait_leases(&s, 0);
	atomic_store(&faults->cut, 1);
	ck_assert_int_eq(scene_get(&s, 1), KVT_EIO);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	scene_wait_leases(&s, 1); /* the lease whose answer was cut stays */
	atomic_store(&faults->garbage, 1);
	ck_assert_int_eq(scene_get(&s, 1), KVT_EIO);
	atomic_store(&faults->chunked, 1);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	atomic_store(&faults->number_ids, 1);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	ck_assert_uint_eq(scene_stats(&s).corrupt, 0);
	end_scene(&s);
}
END_TEST

START_TEST(test_broken_puts)
{
	enum kvt_status status;
	struct kvtierd_wish *w;
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	w = wish_put(&s, 2, 8 << 20, NULL, false);
	atomic_store(&faults->reset_put, 2);
	wish_submit(&s, w);
	ck_assert_int_eq(wish_end(&s, w), KVT_EIO);
	ck_assert(!fake_has(&the_daemon, text_of(2)));
	atomic_store(&faults->reset_put, 0);
	w = wish_put(&s, 2, 8 << 20, NULL, false);
	atomic_store(&faults->early_refusal, 1);
	wish_submit(&s, w);
	status = wish_end(&s, w);
	ck_assert(status == KVT_FULL || status == KVT_EIO);
	w = wish_put(&s, 2, 8 << 20, NULL, false);
	wish_submit(&s, w);
	ck_assert_int_eq(wish_end(&s, w), KVT_OK);
	end_scene(&s);
}
END_TEST

START_TEST(test_statuses)
{
	static const struct {
		int status;
		enum kvt_status get, put;
	} cases[] = {
		{404, KVT_MISS, KVT_BUSY},
		{504, KVT_MISS, KVT_EIO},
		{409, KVT_MISS, KVT_OK},
		{400, KVT_MISS, KVT_BUSY},
		{503, KVT_BUSY, KVT_BUSY},
		{429, KVT_BUSY, KVT_BUSY},
		{507, KVT_FULL, KVT_FULL},
		{413, KVT_FULL, KVT_FULL},
		{500, KVT_EIO, KVT_EIO},
		{502, KVT_EIO, KVT_EIO},
		{201, KVT_MISS, KVT_OK},
	};
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		atomic_store(&faults->status, cases[i].status);
		atomic_store(&faults->status_verb, 'P');
		atomic_store(&faults->status_times, 1);
		ck_assert_int_eq(scene_get(&s, 1), cases[i].get);
		atomic_store(&faults->status_times, 1);
		ck_assert_int_eq(scene_put(&s, 2), cases[i].put);
		ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	}
	end_scene(&s);
}
END_TEST

static enum kvt_status put_answered(struct scene *s, uint64_t n, int status)
{
	atomic_store(&faults->status, status);
	atomic_store(&faults->status_verb, 'P');
	atomic_store(&faults->status_times, 1);
	return scene_put(s, n);
}

/* What a tenant's limit refuses is no fault of the tier: it works, counts, and others lose nothing when such a chunk is
 * erased. */
START_TEST(test_quota_is_no_fault)
{
	uint64_t evictions, refusals;
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	atomic_store(&faults->quota, 1);
	for (uint64_t n = 0; n < 300; n++) /* more than there is room for doubts */
		ck_assert_int_eq(put_answered(&s, 2 + n % 7, 507), KVT_FULL);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_WORKS);
	ck_assert_str_eq(scene_stats(&s).reason, "");
	ck_assert_uint_eq(scene_stats(&s).io_errors, 0);
	s.tier->ops->limited(s.tier, &evictions, &refusals);
	ck_assert_uint_eq(refusals, 300);
	ck_assert_uint_eq(evictions, 0);
	atomic_store(&faults->can_delete, 1);
	for (uint64_t n = 2; n < 5; n++)
		ck_assert_int_eq(scene_erase(&s, n), KVT_OK);
	ck_assert_int_eq(scene_flush(&s), KVT_OK);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	end_scene(&s);
}
END_TEST

/* A daemon that is full or busy works, and the reason says what it refuses; a fault is not hidden by that. */
START_TEST(test_full_is_no_fault)
{
	uint64_t evictions, refusals;
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(put_answered(&s, 1, 503), KVT_BUSY);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	ck_assert_int_eq(put_answered(&s, 2, 507), KVT_FULL);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_WORKS);
	ck_assert(strstr(scene_stats(&s).reason, "507") != NULL);
	ck_assert_int_eq(put_answered(&s, 2, 500), KVT_EIO);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_BROKEN);
	ck_assert_int_eq(put_answered(&s, 2, 507), KVT_FULL);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_BROKEN);
	ck_assert(strstr(scene_stats(&s).reason, "500") != NULL);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_WORKS);
	ck_assert_str_eq(scene_stats(&s).reason, "");
	s.tier->ops->limited(s.tier, &evictions, &refusals);
	ck_assert_uint_eq(refusals, 0);
	end_scene(&s);
}
END_TEST

/* --- lies ------------------------------------------------------------------------------------- */

START_TEST(test_lies)
{
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	atomic_store(&faults->fragments, 3);
	ck_assert_int_eq(scene_put(&s, 2), KVT_OK);
	for (int lie = FAKE_LIE_BEYOND; lie <= FAKE_LIE_NEGATIVE; lie++) {
		enum kvt_status status;

		atomic_store(&faults->lie, lie);
		atomic_store(&faults->lie_times, 1);
		status = scene_get(&s, 2);
		ck_assert_msg(status != KVT_OK, "lie %d was believed", lie);
		scene_close(&s); /* what it knew of before */
		scene_open(&s);
		ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
		atomic_store(&faults->lie_times, 1);
		ck_assert_msg(scene_probe(&s, 2, 1, NULL) == 0, "a probe believed lie %d", lie);
		atomic_store(&faults->lie_times, 0);
		scene_close(&s); /* forgets that it is missing */
		scene_open(&s);
		ck_assert_uint_eq(scene_probe(&s, 2, 1, NULL), 1);
		ck_assert_int_eq(scene_get(&s, 2), KVT_OK);
	}
	end_scene(&s);
}
END_TEST

/* The bytes change after the lease was granted, anywhere. */
START_TEST(test_changed_bytes)
{
	uint64_t bytes;
	struct scene s;

	open_scene(&s, 10000 * MS);
	atomic_store(&faults->fragments, 5);
	ck_assert_int_eq(scene_put(&s, 3), KVT_OK); /* with names */
	bytes = scene_bytes(3);
	for (uint64_t at = 0; at < bytes + 600; at += at < bytes ? 7919 : 23) {
		if (!fake_has(&the_daemon, text_of(3)))
			break;
		if (at >= bytes + 336 + 100)
			break;
		ck_assert(fake_damage(&the_daemon, text_of(3), at));
		if (at < bytes)
			ck_assert_int_eq(scene_get(&s, 3), KVT_ECORRUPT);
		else
			(void)scene_get(&s, 3); /* names may be lost: the bytes are right */
		ck_assert(fake_damage(&the_daemon, text_of(3), at));
		ck_assert_int_eq(scene_get(&s, 3), KVT_OK);
	}
	atomic_store(&faults->overwrite, 1);
	ck_assert_int_eq(scene_get(&s, 3), KVT_ECORRUPT);
	ck_assert_uint_gt(scene_stats(&s).corrupt, 10);
	end_scene(&s);
}
END_TEST

/* A whole object that belongs under another name. */
START_TEST(test_wrong_object)
{
	struct scene s, other;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	scene_init(&other, &the_daemon);
	other.config.fingerprint.bytes[20] ^= 1; /* the names are the same, the model is not */
	scene_open(&other);
	ck_assert_int_eq(scene_get(&other, 1), KVT_ECORRUPT);
	ck_assert_uint_eq(scene_probe(&other, 1, 1, NULL), 0);
	scene_close(&other);
	end_scene(&s);
}
END_TEST

/* --- the segment ------------------------------------------------------------------------------ */

START_TEST(test_new_segment)
{
	struct scene s;

	open_scene(&s, 10000 * MS);
	for (int turn = 0; turn < 4; turn++) {
		for (uint64_t n = 1; n <= 5; n++)
			ck_assert_int_eq(scene_put(&s, n), KVT_OK);
		ck_assert_uint_eq(scene_probe(&s, 1, 5, NULL), 5);
		ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
		fake_restart(&the_daemon, turn % 2 == 0);
		for (uint64_t n = 1; n <= 5; n++)
			ck_assert_int_ne(scene_get(&s, n), KVT_OK);
		s.ahead_ns += 61000 * MS; /* nothing is believed any more */
	}
	end_scene(&s);
}
END_TEST

START_TEST(test_no_segment)
{
	struct scene s;

	open_scene(&s, 10000 * MS);
	ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	(void)shm_unlink(the_daemon.segment); /* as Python's runtime does: what is mapped goes on */
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	scene_close(&s);
	scene_open(&s);
	ck_assert_int_eq(scene_get(&s, 1), KVT_EIO);
	ck_assert(strstr(scene_stats(&s).reason, the_daemon.segment) != NULL);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_BROKEN);
	end_scene(&s);
}
END_TEST

/* --- ends ------------------------------------------------------------------------------------- */

static unsigned ended, cancelled;

static void count_done(struct kvt_tier_request *r)
{
	ended++;
	cancelled += r->status == KVT_ECANCELED;
}

/* Everything comes back when the tier ends, once. */
START_TEST(test_end_in_the_middle)
{
	for (unsigned steps = 0; steps < 12; steps++) {
		struct kvtierd_wish *w[6];
		struct scene s;

		open_scene(&s, 10000 * MS);
		ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
		scene_close(&s);
		scene_open(&s);
		atomic_store(&faults->late_ms, 20);
		atomic_store(&faults->put_late_ms, 20);
		w[0] = wish_get(&s, 1, 0);
		w[1] = wish_put(&s, 2, 4 << 20, NULL, true);
		w[2] = wish_begin(&s, KVT_TIER_PROBE, 1, 9, 0);
		w[3] = wish_begin(&s, KVT_TIER_ERASE, 4, 9, 0);
		w[4] = wish_begin(&s, KVT_TIER_FLUSH, 0, 0, 0);
		w[5] = wish_get(&s, 5, 0);
		ended = 0;
		for (int i = 0; i < 6; i++) {
			wish_submit(&s, w[i]);
			w[i]->request.done = count_done;
		}
		scene_step(&s, steps * steps / 2);
		scene_close(&s);
		ck_assert_uint_eq(ended, 6);
		for (int i = 0; i < 6; i++) {
			free(w[i]->keys);
			free(w[i]->bytes);
			free(w[i]);
		}
		fake_stop(&the_daemon);
	}
	ck_assert_uint_gt(cancelled, 0);
}
END_TEST

/* --- all of it -------------------------------------------------------------------------------- */

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void any_fault(uint64_t *random)
{
	_Atomic int *const times[] = {&faults->drop, &faults->cut, &faults->reset_put,
		&faults->lie_times, &faults->overwrite, &faults->status_times, &faults->garbage,
		&faults->early_refusal};
	static const int statuses[] = {404, 500, 503, 409, 504};

	atomic_store(&faults->lie, (int)(1 + random_next(random) % FAKE_LIE_NEGATIVE));
	atomic_store(&faults->status, statuses[random_next(random) % 5]);
	atomic_store(&faults->status_verb, random_next(random) % 2 == 0 ? 'P' : 'D');
	atomic_store(&faults->fragments, (int)(random_next(random) % 9));
	atomic_store(&faults->can_delete, (int)(random_next(random) % 2));
	atomic_store(&faults->close_after, (int)(random_next(random) % 8));
	atomic_store(times[random_next(random) % (sizeof(times) / sizeof(times[0]))],
		(int)(random_next(random) % 3));
}

/* Any order of requests and faults: never a byte that is not the key's. */
START_TEST(test_random)
{
	uint64_t random = UINT64_C(88172645463325252) + (uint64_t)_i;
	struct scene s;
	unsigned right = 0;

	open_scene(&s, 2000 * MS);
	for (int round = 0; round < 150; round++) {
		uint64_t n = random_next(&random) % 12;

		if (random_next(&random) % 6 == 0 && the_daemon.connections < 200)
			any_fault(&random);
		switch (random_next(&random) % 8) {
		case 0:
		case 1:
			(void)scene_put(&s, n);
			break;
		case 2:
			(void)scene_erase(&s, n);
			break;
		case 3:
			(void)scene_probe(&s, n, 5, NULL);
			break;
		case 4:
			if (random_next(&random) % 8 == 0)
				fake_restart(&the_daemon, random_next(&random) % 2 == 0);
			s.ahead_ns += (int64_t)(random_next(&random) % 3000) * MS;
			break;
		default:
			right += scene_get(&s, n) == KVT_OK;
			break;
		}
		if (the_daemon.connections > 200)
			break;
	}
	memset(faults, 0, sizeof(*faults));
	if (the_daemon.connections <= 200) {
		s.ahead_ns += 61000 * MS;
		while (scene_put(&s, 1) != KVT_OK)
			;
		ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	}
	ck_assert_uint_gt(right, 0);
	end_scene(&s);
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 200);
	tcase_add_test(all, test_late_lease);
	tcase_add_test(all, test_stalled);
	tcase_add_test(all, test_lease_that_ends);
	tcase_add_test(all, test_slow_misses);
	tcase_add_test(all, test_closed_connections);
	tcase_add_test(all, test_refused_connections);
	tcase_add_test(all, test_broken_answers);
	tcase_add_test(all, test_broken_puts);
	tcase_add_test(all, test_statuses);
	tcase_add_test(all, test_quota_is_no_fault);
	tcase_add_test(all, test_full_is_no_fault);
	tcase_add_test(all, test_lies);
	tcase_add_test(all, test_changed_bytes);
	tcase_add_test(all, test_wrong_object);
	tcase_add_test(all, test_new_segment);
	tcase_add_test(all, test_no_segment);
	tcase_add_test(all, test_end_in_the_middle);
	tcase_add_loop_test(all, test_random, 0, 12);
	return run_tcase("kvtierd faults", all);
}
