/*
 * kvtierd_test.c - the tiered-storage tier and a daemon that works.
 */
#include <check.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kvtierd_scene.h"
#include "tests/unit/suite.h"

static struct fake_daemon the_daemon;

static void open_scene(struct scene *s)
{
	fake_start(&the_daemon);
	scene_init(s, &the_daemon);
	scene_open(s);
}

/* Lets what is kept go back by itself: a tier's end has half a second for that, by the machine's
 * clock. */
static void give_back_all(struct scene *s)
{
	s->ahead_ns += 1100000000;
	scene_wait_leases(s, 0);
}

static void end_scene(struct scene *s)
{
	give_back_all(s);
	scene_close(s);
	ck_assert_int_eq(the_daemon.live, 0); /* every lease was released */
	ck_assert_int_eq(the_daemon.unknown_releases, 0);
	fake_stop(&the_daemon);
}

START_TEST(test_put_and_get)
{
	struct scene s;

	open_scene(&s);
	for (uint64_t n = 1; n < 40; n++) {
		atomic_store(&the_daemon.faults.fragments, (int)(n % 7));
		ck_assert_int_eq(scene_get(&s, n), KVT_MISS);
		ck_assert_int_eq(scene_put(&s, n), KVT_OK);
	}
	for (uint64_t n = 1; n < 40; n++)
		ck_assert_int_eq(scene_get(&s, n), KVT_OK);
	ck_assert_uint_eq(scene_stats(&s).loads, 39);
	ck_assert_uint_eq(scene_stats(&s).stores, 39);
	ck_assert_uint_eq(scene_stats(&s).state, KVT_TIER_WORKS);
	ck_assert_uint_eq(s.stored, 13); /* those that were to be announced */
	scene_wait_leases(&s, 0);
	end_scene(&s);
}
END_TEST

/* Another process, which knows nothing, finds what is there, with all that is known of it. */
START_TEST(test_another_process)
{
	struct kvt_tier_known known;
	struct kvt_key key = scene_key(3), parent = scene_key(2);
	struct scene s, other;
	size_t found;

	open_scene(&s);
	for (uint64_t n = 1; n <= 10; n++)
		ck_assert_int_eq(scene_put(&s, n), KVT_OK);
	scene_init(&other, &the_daemon);
	scene_open(&other);
	ck_assert(other.tier->ops->unsure(other.tier, &key));
	ck_assert_int_eq(other.tier->ops->known(other.tier, &key, &known), KVT_MISS);
	found = scene_probe(&other, 1, 20, NULL);
	ck_assert_uint_eq(found, 10);
	ck_assert(!other.tier->ops->unsure(other.tier, &key));
	ck_assert_int_eq(other.tier->ops->known(other.tier, &key, &known), KVT_OK);
	ck_assert_uint_eq(known.bytes, scene_bytes(3));
	ck_assert_uint_eq(known.tokens, 256);
	ck_assert(known.has_parent && memcmp(&known.parent, &parent, sizeof(parent)) == 0);
	for (uint64_t n = 1; n <= 10; n++)
		ck_assert_int_eq(scene_get(&other, n), KVT_OK);
	key = scene_key(11);
	ck_assert(!other.tier->ops->unsure(other.tier, &key)); /* asked, and not there */
	scene_close(&other);
	end_scene(&s);
}
END_TEST

/* The lease of a probe serves the read that follows. */
START_TEST(test_kept_lease)
{
	struct scene s, other;
	bool kept = false;
	int leases;

	open_scene(&s);
	for (uint64_t n = 1; n <= 4; n++)
		ck_assert_int_eq(scene_put(&s, n), KVT_OK);
	scene_init(&other, &the_daemon);
	scene_open(&other);
	for (int i = 0; i < 20 && !kept; i++) {
		ck_assert_uint_eq(scene_probe(&other, 1, 4, NULL), 4);
		leases = the_daemon.leases;
		for (uint64_t n = 1; n <= 4; n++)
			ck_assert_int_eq(scene_get(&other, n), KVT_OK);
		kept = the_daemon.leases == leases; /* unless a second passed */
		if (!kept)
			give_back_all(&other);
	}
	ck_assert(kept);
	ck_assert_int_eq(scene_get(&other, 1), KVT_OK); /* used up */
	ck_assert_int_eq(the_daemon.leases, leases + 1);
	scene_wait_leases(&other, 0);
	/* One that is not used goes back by itself. */
	scene_close(&other);
	scene_open(&other);
	ck_assert_uint_eq(scene_probe(&other, 1, 4, NULL), 4);
	ck_assert_int_gt(the_daemon.live, 0);
	other.ahead_ns += 1100000000;
	scene_wait_leases(&other, 0);
	scene_close(&other);
	end_scene(&s);
}
END_TEST

/* Its way back has half a second; the machine may take that time away, hence more than one try. */
START_TEST(test_a_kept_lease_goes_back_at_the_end)
{
	struct scene s, other;
	bool back = false;

	for (int i = 0; i < 20 && !back; i++) {
		open_scene(&s);
		ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
		scene_init(&other, &the_daemon);
		scene_open(&other);
		ck_assert_uint_eq(scene_probe(&other, 1, 1, NULL), 1);
		ck_assert_int_eq(the_daemon.live, 1);
		scene_close(&other);
		back = the_daemon.live == 0;
		if (back) {
			end_scene(&s);
		} else {
			scene_close(&s);
			fake_stop(&the_daemon);
		}
	}
	ck_assert(back);
}
END_TEST

START_TEST(test_probe_stops)
{
	struct scene s, other;

	open_scene(&s);
	for (uint64_t n = 1; n <= 100; n++)
		if (n != 37)
			ck_assert_int_eq(scene_put(&s, n), KVT_OK);
	scene_init(&other, &the_daemon);
	other.config.l2_connections = 7;
	scene_open(&other);
	the_daemon.leases = 0;
	ck_assert_uint_eq(scene_probe(&other, 1, 100, NULL), 36);
	ck_assert_int_le(the_daemon.leases, 36 + 4 * 7 + 2); /* not asked far beyond */
	ck_assert_uint_eq(scene_probe(&other, 37, 1, NULL), 0);
	ck_assert_uint_eq(scene_probe(&other, 38, 63, NULL), 63);
	ck_assert_uint_eq(scene_probe(&other, 1000, 3, NULL), 0);
	give_back_all(&other);
	scene_close(&other);
	end_scene(&s);
}
END_TEST

START_TEST(test_erase)
{
	struct scene s, other;

	open_scene(&s);
	scene_init(&other, &the_daemon);
	scene_open(&other);
	for (int can = 0; can <= 2; can++) {
		atomic_store(&the_daemon.faults.can_delete, can);
		scene_wait_leases(&s, INT_MAX);
		scene_close(&s); /* forgets what this daemon can */
		scene_open(&s);
		ck_assert_int_eq(scene_put(&s, 1), KVT_OK);
		ck_assert_int_eq(scene_put(&s, 2), KVT_OK);
		ck_assert_int_eq(scene_get(&other, 1), KVT_OK);
		ck_assert_int_eq(scene_erase(&s, 1), KVT_OK);
		ck_assert_int_eq(scene_erase(&s, 77), KVT_OK); /* was never there */
		ck_assert_int_eq(scene_flush(&s), KVT_OK);
		ck_assert_int_eq(scene_get(&s, 1), KVT_MISS);
		ck_assert_int_eq(scene_get(&other, 1), KVT_MISS);
		ck_assert_int_eq(scene_get(&s, 2), KVT_OK);
		ck_assert_int_eq(scene_put(&s, 1), KVT_OK); /* and again */
		ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	}
	ck_assert_uint_eq(scene_stats(&s).corrupt, 0);
	scene_wait_leases(&other, INT_MAX);
	scene_close(&other);
	end_scene(&s);
}
END_TEST

static enum kvt_status ask_table(struct scene *s, struct kvt_table_ask *ask)
{
	struct kvtierd_wish *w = wish_begin(s, KVT_TIER_TABLE, 0, 0, 0);

	w->request.table = ask;
	wish_submit(s, w);
	return wish_end(s, w);
}

/* What kvtierd says of generations; a daemon that knows none of them has none, and an erase there is refused. */
START_TEST(test_generations)
{
	struct kvt_tenant a = {.bytes = {0xa1, 2}};
	struct kvt_table_ask *ask = calloc(1, sizeof(*ask));
	struct scene s;

	open_scene(&s);
	ask->raise = KVT_SLOT_NONE;
	ck_assert_int_eq(ask_table(&s, ask), KVT_OK);
	ck_assert_uint_eq(ask->change_count, 0);
	ck_assert_uint_eq(ask->now[3], 0xff);
	ask->raise = kvt_tenant_slot(&a);
	ask->tenant = &a;
	ck_assert_int_eq(ask_table(&s, ask), KVT_ENOTSUP);
	atomic_store(&the_daemon.faults.has_table, 1);
	ask->after = 2;
	ck_assert_int_eq(ask_table(&s, ask), KVT_OK);
	ck_assert_uint_eq(ask->change_count, 2);
	ck_assert_uint_eq(ask->changes[1].slot, KVT_SLOTS - 1);
	ck_assert_uint_eq(ask->changes[1].number, 12);
	ck_assert_uint_eq(ask->sum, 15);
	ck_assert_uint_eq(ask->now[15], 0xff);
	ck_assert_str_eq(the_daemon.asked, "POST /v1/generations?id=00000000000000000000000000000000&after=2&slot=673"
					   "&tenant=a1020000000000000000000000000000");
	atomic_store(&the_daemon.faults.garbage, 1);
	ck_assert_int_eq(ask_table(&s, ask), KVT_EIO); /* this is no HTTP */
	free(ask);
	end_scene(&s);
}
END_TEST

/* Only an answer that says so means that a daemon keeps no table; and a table that is known does
 * not become none. */
START_TEST(test_no_generations)
{
	static const int none[] = {404, 405, 501}, refusals[] = {400, 401, 429, 500, 502, 503};
	struct kvt_table_ask *ask = calloc(1, sizeof(*ask));
	struct scene s;

	open_scene(&s);
	ask->raise = KVT_SLOT_NONE;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		atomic_store(&the_daemon.faults.has_table, none[i]);
		memset(ask->id, 0, sizeof(ask->id));
		ck_assert_int_eq(ask_table(&s, ask), KVT_OK);
		memcpy(ask->id, ask->now, sizeof(ask->id));
		ck_assert_int_eq(ask_table(&s, ask), KVT_OK);
		ask->id[3] = 1;
		ck_assert_int_eq(ask_table(&s, ask), KVT_ENOTSUP);
	}
	memset(ask->id, 0, sizeof(ask->id));
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		atomic_store(&the_daemon.faults.has_table, refusals[i]);
		ck_assert_int_eq(ask_table(&s, ask), KVT_ENOTSUP);
	}
	free(ask);
	end_scene(&s);
}
END_TEST

/* Two that begin at the same time read what the other wrote. */
START_TEST(test_two_begin)
{
	struct scene s, other;
	struct kvtierd_wish *a, *b;

	open_scene(&s);
	scene_init(&other, &the_daemon);
	scene_open(&other);
	a = wish_put(&s, 1, scene_bytes(1), NULL, false);
	b = wish_put(&other, 2, scene_bytes(2), NULL, false);
	wish_submit(&s, a);
	wish_submit(&other, b);
	while (!a->done || !b->done) {
		scene_step(&s, 1);
		scene_step(&other, 1);
	}
	ck_assert_int_eq(wish_end(&s, a), KVT_OK);
	ck_assert_int_eq(wish_end(&other, b), KVT_OK);
	s.ahead_ns += 61000000000;
	other.ahead_ns += 61000000000;
	ck_assert_int_eq(scene_put(&s, 3), KVT_OK);
	ck_assert_int_eq(scene_get(&other, 3), KVT_OK);
	ck_assert_int_eq(scene_put(&other, 4), KVT_OK);
	ck_assert_int_eq(scene_get(&s, 4), KVT_OK);
	scene_wait_leases(&other, INT_MAX);
	scene_close(&other);
	end_scene(&s);
}
END_TEST

START_TEST(test_ttl)
{
	struct scene s;
	struct kvtierd_wish *w;

	open_scene(&s);
	w = wish_put(&s, 1, scene_bytes(1), NULL, false);
	w->item.ttl_ns = 1000000000000;
	wish_submit(&s, w);
	ck_assert_int_eq(wish_end(&s, w), KVT_OK);
	ck_assert_int_eq(scene_put(&s, 2), KVT_OK);
	s.ahead_ns = 999000000000;
	ck_assert_int_eq(scene_get(&s, 1), KVT_OK);
	s.ahead_ns = 1001000000000;
	ck_assert_int_eq(scene_get(&s, 1), KVT_MISS);
	ck_assert_int_eq(scene_get(&s, 2), KVT_OK);
	s.ahead_ns = (int64_t)s.config.l2_ttl_ns + 1000000000;
	ck_assert_int_eq(scene_get(&s, 2), KVT_MISS);
	end_scene(&s);
}
END_TEST

/* A chunk of another length than the caller expects is a miss. */
START_TEST(test_other_length)
{
	struct scene s;
	struct kvtierd_wish *w;

	open_scene(&s);
	w = wish_put(&s, 1, scene_bytes(1) + 1, NULL, false);
	wish_submit(&s, w);
	ck_assert_int_eq(wish_end(&s, w), KVT_OK);
	ck_assert_int_eq(scene_get(&s, 1), KVT_MISS);
	end_scene(&s);
}
END_TEST

/* Names go with the chunk and come back. */
START_TEST(test_names)
{
	struct kvtierd_wish *w;
	struct scene s;

	open_scene(&s);
	ck_assert_int_eq(scene_put(&s, 3), KVT_OK);
	w = wish_get(&s, 3, 0);
	wish_submit(&s, w);
	while (!w->done)
		scene_step(&s, 1);
	ck_assert(w->had_names);
	ck_assert_int_eq(wish_end(&s, w), KVT_OK);
	end_scene(&s);
}
END_TEST

/* More than may be under way waits, and all of it arrives. */
START_TEST(test_many_at_once)
{
	struct kvtierd_wish *wishes[60];
	struct scene s;

	fake_start(&the_daemon);
	scene_init(&s, &the_daemon);
	s.config.l2_inflight = 1 << 20;
	s.config.l2_deadline_ns = 60000000000; /* of one that waits for all the others */
	scene_open(&s);
	for (int turn = 0; turn < 2; turn++) {
		for (uint64_t n = 0; n < 60; n++) {
			wishes[n] = turn == 0 ? wish_put(&s, n, scene_bytes(n), NULL, false)
					      : wish_get(&s, n, 0);
			wish_submit(&s, wishes[n]);
		}
		ck_assert_uint_gt(
			scene_stats(&s).queued_read_bytes + scene_stats(&s).queued_write_bytes, 0);
		for (uint64_t n = 0; n < 60; n++)
			ck_assert_int_eq(wish_end(&s, wishes[n]), KVT_OK);
	}
	ck_assert_uint_eq(scene_stats(&s).queued_read_bytes, 0);
	ck_assert_uint_eq(scene_stats(&s).queued_write_bytes, 0);
	ck_assert_int_le(the_daemon.most_connections, 4 + 1); /* one may be at its end */
	end_scene(&s);
}
END_TEST

/* What is not for this tier. */
START_TEST(test_create)
{
	static const struct {
		const char *url, *keys, *bucket, *segment;
		enum kvt_status want;
	} cases[] = {
		{"", "", "b", "s", KVT_MISS},
		{"redis://127.0.0.1", "", "b", "s", KVT_MISS},
		{"kvtierd://127.0.0.1", "/k", "b", "s", KVT_ENOTSUP},
		{"kvtierd://127.0.0.1", "", "", "s", KVT_EINVAL},
		{"kvtierd://127.0.0.1", "", "..", "s", KVT_EINVAL},
		{"kvtierd://127.0.0.1", "", "b", "a/b", KVT_EINVAL},
		{"kvtierd://127.0.0.1", "", "b/c", "s", KVT_OK},
	};
	struct fake_daemon none = {.port = 1};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvt_tier *tier = NULL;
		struct scene s;
		struct kvt_tier_options options = {
			.config = &s.config, .surroundings = &s.surroundings};

		scene_init(&s, &none);
		kvt_surroundings_init(&s.surroundings, &s.config);
		s.config.l2_url = cases[i].url;
		s.config.protect_keys = cases[i].keys;
		s.config.l2_bucket = cases[i].bucket;
		s.config.l2_segment = cases[i].segment;
		ck_assert_int_eq(kvt_kvtierd_ops.create(&options, s.why, &tier), cases[i].want);
		ck_assert_int_eq(
			s.why[0] != '\0', cases[i].want != KVT_MISS && cases[i].want != KVT_OK);
		kvt_kvtierd_ops.destroy(tier);
	}
	kvt_kvtierd_ops.destroy(NULL);
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_put_and_get);
	tcase_add_test(all, test_another_process);
	tcase_add_test(all, test_kept_lease);
	tcase_add_test(all, test_a_kept_lease_goes_back_at_the_end);
	tcase_add_test(all, test_probe_stops);
	tcase_add_test(all, test_erase);
	tcase_add_test(all, test_generations);
	tcase_add_test(all, test_no_generations);
	tcase_add_test(all, test_two_begin);
	tcase_add_test(all, test_ttl);
	tcase_add_test(all, test_other_length);
	tcase_add_test(all, test_names);
	tcase_add_test(all, test_many_at_once);
	tcase_add_test(all, test_create);
	return run_tcase("kvtierd", all);
}
