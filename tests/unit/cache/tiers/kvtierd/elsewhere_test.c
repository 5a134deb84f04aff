/*
 * elsewhere_test.c - another process erases in the daemon: this one hears of it, writes nothing that was put before,
 * and takes no lost mark for an erase.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kvtierd_scene.h"
#include "tests/unit/suite.h"
#include "tiers/kvtierd/kvtierd_format.h"

#define SEEN_OVER INT64_C(61000000000) /* answers are believed no longer */
#define SECOND    INT64_C(1000000000)

#define ALICES_MARK "-0100" /* in its name */

static struct fake_daemon the_daemon;
static struct scene ours, other, third;
static const struct kvt_tenant alice = {.bytes = {1}}, bob = {.bytes = {2}};

static void open_both(void)
{
	fake_start(&the_daemon);
	scene_init(&ours, &the_daemon);
	scene_init(&other, &the_daemon);
	scene_open(&ours);
	scene_open(&other);
}

static void close_both(void)
{
	if (other.tier != NULL)
		scene_close(&other);
	scene_close(&ours);
	ck_assert_int_eq(the_daemon.live, 0);
	fake_stop(&the_daemon);
}

static void erase(struct scene *s, const struct kvt_tenant *tenant)
{
	size_t erased;

	ck_assert_int_eq(tenant != NULL ? s->tier->ops->erase_tenant(s->tier, tenant, &erased)
					: s->tier->ops->erase_all(s->tier, &erased),
		KVT_OK);
	ck_assert_int_eq(scene_flush(s), KVT_OK);
}

/* Both know both tenants. */
static void know(void)
{
	ck_assert_int_eq(scene_put_of(&ours, 1, &alice), KVT_OK);
	ck_assert_int_eq(scene_put_of(&ours, 2, &bob), KVT_OK);
	ck_assert_int_eq(scene_get(&other, 1), KVT_OK);
	ck_assert_int_eq(scene_get(&other, 2), KVT_OK);
}

static bool heard_of(const struct scene *s, const struct kvt_tenant *tenant)
{
	for (size_t i = 0; i < s->elsewhere.count; i++)
		if (memcmp(&s->elsewhere.tenants[i], tenant, sizeof(*tenant)) == 0)
			return s->elsewhere.depths[i] == KVT_ELSEWHERE_ALL;
	return false;
}

START_TEST(an_erase_is_heard_of_once)
{
	know();
	erase(&ours, &alice);
	ours.ahead_ns += SEEN_OVER;
	other.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&other, 2), KVT_OK);
	ck_assert_uint_eq(other.taken, 0);
	ck_assert_int_eq(scene_get(&other, 1), KVT_MISS);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert_uint_eq(other.elsewhere.all, KVT_ELSEWHERE_NOTHING);
	ck_assert_uint_eq(other.elsewhere.count, 1);
	ck_assert(heard_of(&other, &alice));
	ck_assert_int_eq(scene_put_of(&ours, 3, &alice), KVT_OK);
	ours.ahead_ns += SEEN_OVER;
	other.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&other, 3), KVT_OK);
	ck_assert_int_eq(scene_get(&ours, 3), KVT_OK);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert_uint_eq(ours.taken, 0); /* it erased */
	erase(&other, NULL);
	ours.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&ours, 3), KVT_MISS);
	ck_assert_uint_eq(ours.taken, 1);
	ck_assert_uint_eq(ours.elsewhere.all, KVT_ELSEWHERE_ALL);
}
END_TEST

/* A chunk that waits to be written when another process erases would be stamped as younger than the erase. */
START_TEST(what_was_put_before_is_not_stored_after)
{
	struct kvtierd_wish *first, *second;
	int64_t next_ns;

	know();
	erase(&ours, &alice);
	other.ahead_ns += SEEN_OVER;
	other.leave_elsewhere = true;
	first = wish_put(&other, 3, scene_bytes(3), &alice, false);
	wish_submit(&other, first);
	ck_assert_int_eq(wish_end(&other, first), KVT_BUSY);
	/* Nor what comes before the caller has heard of it, though the tier knows the new epoch. */
	second = wish_put(&other, 4, scene_bytes(4), &alice, false);
	wish_submit(&other, second);
	other.tier->ops->take_elsewhere(other.tier, &other.elsewhere);
	ck_assert(heard_of(&other, &alice));
	while (!second->done)
		(void)other.tier->ops->step(other.tier, 1000000, &next_ns);
	ck_assert_int_eq(wish_end(&other, second), KVT_BUSY);
	ck_assert_int_eq(scene_get(&ours, 3), KVT_MISS);
	ck_assert_int_eq(scene_get(&ours, 4), KVT_MISS);
	ck_assert_int_eq(scene_put_of(&other, 5, &alice), KVT_OK); /* it was put after it */
	ck_assert_int_eq(scene_get(&ours, 5), KVT_OK);
	ck_assert_int_eq(scene_put_of(&other, 6, &bob), KVT_OK);
}
END_TEST

/* The daemon lost its marks: no process erases for that, also where something was erased before. */
START_TEST(a_lost_mark_is_no_erase)
{
	know();
	if (_i > 0) {
		erase(&ours, &alice);
		other.ahead_ns += SEEN_OVER;
		ck_assert_int_eq(scene_get(&other, 1), KVT_MISS);
	}
	for (int round = 0; round < 2; round++) { /* one replaces the mark, then the other */
		struct scene *s = round == 0 ? &ours : &other, *t = round == 0 ? &other : &ours;
		uint64_t n = 10 + (uint64_t)round;

		fake_forget(&the_daemon, "epoch-");
		ours.ahead_ns += SEEN_OVER;
		other.ahead_ns += SEEN_OVER;
		ck_assert_int_eq(scene_put_of(s, n, &alice), KVT_OK);
		ck_assert_int_eq(scene_get(t, n), KVT_OK);
	}
	ck_assert_uint_eq(other.taken, _i > 0);
	ck_assert_uint_eq(ours.taken, 0);
	/* ... and the mark that was replaced still says that there was an erase: this one is another. */
	erase(&other, &alice);
	ours.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&ours, 11), KVT_MISS);
	ck_assert_uint_eq(ours.taken, 1);
}
END_TEST

/* The mark of an erase is lost before the other has looked; one that knows of the erase replaces it. */
START_TEST(a_lost_erase_is_told_by_who_knows_it)
{
	know();
	erase(&ours, &alice);
	fake_forget(&the_daemon, "epoch-");
	ours.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_put_of(&ours, 3, &alice), KVT_OK);
	other.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&other, 1), KVT_MISS);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert(heard_of(&other, &alice));
}
END_TEST

/* ... or one that knows of none: that says nothing. */
START_TEST(a_mark_without_an_erase_says_nothing)
{
	ck_assert_int_eq(scene_put_of(&ours, 1, &alice), KVT_OK);
	erase(&ours, &alice);
	erase(&ours, &alice);
	fake_forget(&the_daemon, "epoch-");
	ck_assert_int_eq(scene_put_of(&other, 3, &alice), KVT_OK);
	ours.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&ours, 3), KVT_OK);
	ck_assert_uint_eq(ours.taken, 0);
}
END_TEST

/* A process that looks for the first time: what was erased before it began is no matter of its own. */
START_TEST(the_first_look)
{
	ck_assert_int_eq(scene_put_of(&ours, 1, &alice), KVT_OK);
	erase(&ours, &alice); /* the other lives, and has never looked */
	ck_assert_int_eq(scene_put_of(&other, 3, &alice), KVT_BUSY);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert(heard_of(&other, &alice));
	ck_assert_int_eq(scene_put_of(&other, 3, &alice), KVT_OK);
	scene_close(&other);
	other.wall_ahead_ns += SECOND;
	scene_open(&other);
	ck_assert_int_eq(scene_put_of(&other, 4, &alice), KVT_OK);
	ck_assert_int_eq(scene_get(&ours, 4), KVT_OK);
	ck_assert_uint_eq(other.taken, 1);
}
END_TEST

static void hold_for(struct scene *s, int tenths)
{
	for (int i = 0; i < tenths; i++) {
		s->tier->ops->holds(s->tier, &alice, 1);
		s->ahead_ns += SECOND / 10;
		scene_step(s, 6);
	}
}

/* The mark at which a process looks for the first time is a lost one, that another replaced: what it names was erased
 * before the process began. */
START_TEST(an_old_erase_in_a_mark_that_was_replaced)
{
	struct kvtierd_wish *a, *b;

	ck_assert_int_eq(scene_put_of(&ours, 1, &alice), KVT_OK);
	erase(&ours, &alice);
	scene_close(&other);
	other.wall_ahead_ns += SECOND;
	scene_open(&other);
	ours.ahead_ns += SEEN_OVER;
	if (_i == 0) { /* it finds nothing, by the clock */
		fake_forget(&the_daemon, "epoch-");
		hold_for(&other, 10);
		ck_assert_int_ge(the_daemon.misses, 2);
		ck_assert_int_eq(scene_put_of(&ours, 3, &alice), KVT_OK);
	} else { /* both find nothing, both make one, and the other's stays */
		fake_forget(&the_daemon, ALICES_MARK);
		atomic_store(&the_daemon.faults.miss_wait_ms, 200);
		the_daemon.misses = 0;
		a = wish_put(&ours, 3, scene_bytes(3), &alice, false);
		wish_submit(&ours, a);
		while (the_daemon.misses == 0)
			scene_step(&ours, 1);
		atomic_store(&the_daemon.faults.miss_wait_ms, 0);
		atomic_store(&the_daemon.faults.put_late_ms, 60000);
		b = wish_put(&other, 4, scene_bytes(4), &alice, false);
		wish_submit(&other, b);
		while (the_daemon.late == 0)
			scene_step(&other, 1);
		atomic_store(&the_daemon.faults.put_late_ms, 0);
		ck_assert_int_eq(wish_end(&ours, a), KVT_OK);
		ck_assert_int_eq(wish_end(&other, b), KVT_OK);
	}
	ck_assert_int_eq(scene_get(&other, 3), KVT_OK);
	ck_assert_uint_eq(other.taken, 0);
	erase(&ours, &alice);
	other.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&other, 3), KVT_MISS);
	ck_assert_uint_eq(other.taken, 1);
}
END_TEST

/* A lost mark is replaced by a process that missed the last erase: the one that it names is known to the others. */
START_TEST(an_erase_from_before_the_last_is_no_news)
{
	know();
	scene_init(&third, &the_daemon);
	scene_open(&third);
	for (uint64_t n = 10; n < 13; n++) {
		ck_assert_int_eq(scene_put_of(&ours, n, &alice), KVT_OK);
		ck_assert_int_eq(scene_get(&third, n), n < 12 ? KVT_OK : KVT_MISS);
		erase(&ours, &alice);
		other.ahead_ns += SEEN_OVER;
		ck_assert_int_eq(scene_get(&other, n), KVT_MISS);
		if (n == 10)
			third.ahead_ns += SEEN_OVER; /* it sees this one only */
	}
	ck_assert_uint_eq(other.taken, 3);
	fake_forget(&the_daemon, "epoch-");
	ours.ahead_ns += SEEN_OVER;
	other.ahead_ns += SEEN_OVER;
	third.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_put_of(&third, 20, &alice), KVT_OK);
	ck_assert_int_eq(scene_get(&other, 20), KVT_OK);
	ck_assert_int_eq(scene_get(&ours, 20), KVT_OK);
	ck_assert_uint_eq(other.taken, 3);
	ck_assert_uint_eq(ours.taken, 0);
	ck_assert_uint_eq(third.taken, 1);
	/* One of them still knows the last erase: its mark names it. */
	fake_forget(&the_daemon, ALICES_MARK);
	other.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_put_of(&other, 21, &alice), KVT_OK);
	third.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&third, 20), KVT_MISS);
	ck_assert_uint_eq(third.taken, 2);
	scene_close(&third);
}
END_TEST

/* The mark that a look finds may be from before more than one erase of our own. */
START_TEST(two_own_erases_during_a_look)
{
	struct kvtierd_wish *w;
	size_t erased;

	know();
	erase(&ours, &alice);
	ours.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_put_of(&ours, 3, &bob), KVT_OK); /* the mark of all is known again */
	atomic_store(&the_daemon.faults.late_ms, 60000);
	w = wish_put(&ours, 4, scene_bytes(4), &alice, false);
	wish_submit(&ours, w);
	while (the_daemon.late == 0)
		scene_step(&ours, 1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(ours.tier->ops->erase_tenant(ours.tier, &alice, &erased), KVT_OK);
	atomic_store(&the_daemon.faults.late_ms, 0);
	ck_assert_int_eq(scene_flush(&ours), KVT_OK);
	(void)wish_end(&ours, w);
	ck_assert_uint_eq(ours.taken, 0);
}
END_TEST

/* An erase of ours is on its way while another process erases: we hear of theirs, before our mark takes its place. */
START_TEST(two_erases_at_once)
{
	struct kvtierd_wish *w;
	size_t erased;

	know();
	atomic_store(&the_daemon.faults.can_forget, 1000);
	ck_assert_int_eq(other.tier->ops->erase_tenant(other.tier, &alice, &erased), KVT_OK);
	w = wish_put(&other, 3, scene_bytes(3), &alice, false);
	wish_submit(&other, w);
	while (the_daemon.forgets < 3)
		scene_step(&other, 1);
	atomic_store(&the_daemon.faults.can_forget, 0);
	erase(&ours, &alice);
	ck_assert_int_eq(scene_flush(&other), KVT_OK);
	ck_assert_int_eq(wish_end(&other, w), KVT_BUSY);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert(heard_of(&other, &alice));
	ours.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_put_of(&ours, 5, &alice), KVT_BUSY); /* it hears of ours */
	ck_assert_uint_eq(ours.taken, 1);
	other.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_put_of(&other, 4, &alice), KVT_OK);
	ck_assert_int_eq(scene_get(&ours, 4), KVT_OK);
	ck_assert_uint_eq(other.taken, 1);
}
END_TEST

/* The number that we replace for a chunk, whose write may still take place, is no erase: our mark names theirs. */
START_TEST(an_erase_while_a_chunk_takes_the_number)
{
	struct kvtierd_wish *w;

	know();
	scene_init(&third, &the_daemon);
	scene_open(&third);
	ck_assert_int_eq(scene_get(&third, 1), KVT_OK);
	atomic_store(&the_daemon.faults.put_late_ms, 60000);
	w = wish_put(&other, 3, scene_bytes(3), &alice, false);
	wish_submit(&other, w);
	while (the_daemon.late == 0)
		scene_step(&other, 1);
	other.ahead_ns += 21 * SECOND;
	ck_assert_int_ne(wish_end(&other, w), KVT_OK);
	atomic_store(&the_daemon.faults.put_late_ms, 0);
	atomic_store(&the_daemon.faults.can_forget, 1000);
	w = wish_begin(&other, KVT_TIER_ERASE, 3, 1, 0);
	wish_submit(&other, w);
	while (the_daemon.forgets < 3)
		scene_step(&other, 1);
	atomic_store(&the_daemon.faults.can_forget, 0);
	erase(&ours, &alice);
	ck_assert_int_eq(wish_end(&other, w), KVT_OK);
	ck_assert_int_eq(scene_flush(&other), KVT_OK);
	ck_assert_uint_eq(other.taken, 1);
	third.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&third, 1), KVT_MISS);
	ck_assert_uint_eq(third.taken, 1);
	scene_close(&third);
}
END_TEST

/* ... but an answer to that look is nothing that an erase waits for. */
START_TEST(an_erase_without_a_look)
{
	size_t erased;
	int before;

	know();
	erase(&other, &bob); /* it hears that this daemon drops nothing */
	scene_wait_no_lease(&other);
	before = the_daemon.leases;
	if (_i == 0) {
		atomic_store(&the_daemon.faults.status, 500);
		atomic_store(&the_daemon.faults.status_verb, 'P');
		atomic_store(&the_daemon.faults.status_times, 1);
		erase(&other, &alice);
		ck_assert_int_eq(the_daemon.leases, before);
	} else {
		atomic_store(&the_daemon.faults.late_ms, 60000);
		ck_assert_int_eq(
			other.tier->ops->erase_tenant(other.tier, &alice, &erased), KVT_OK);
		while (the_daemon.late == 0)
			scene_step(&other, 1);
		other.ahead_ns += 2 * SECOND;
		ck_assert_int_eq(scene_flush(&other), KVT_OK);
		atomic_store(&the_daemon.faults.late_ms, 0);
		while (the_daemon.leases == before)
			scene_step(&other, 1);
		scene_wait_no_lease(&other);
	}
	ours.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&ours, 1), KVT_MISS);
	ck_assert_uint_eq(ours.taken, 1);
}
END_TEST

/* More tenants than the table has room for: one of which chunks are held here stays in it, or comes into it. */
START_TEST(held_tenants_have_room)
{
	struct kvt_tenant some[128] = {{.bytes = {0}}};
	int before;

	hold_for(&other, 10);
	for (uint32_t i = 0; i < 4096 + 128; i++) {
		some[i % 128].bytes[0] = (uint8_t)(2 + i % 250);
		some[i % 128].bytes[1] = (uint8_t)(i >> 8);
		some[i % 128].bytes[2] = (uint8_t)i;
		if (i % 128 < 127)
			continue;
		other.tier->ops->holds(other.tier, some, 128);
		scene_step(&other, 1);
	}
	other.ahead_ns += 4 * SECOND; /* they are held no more */
	scene_step(&other, 20);
	hold_for(&other, 10);
	before = the_daemon.misses;
	for (uint64_t i = 0; i < 20; i++) { /* each is new, and pushes one out */
		struct kvt_tenant next = {.bytes = {9, 99, (uint8_t)i}};

		ck_assert_int_eq(scene_put_of(&other, i, &next), KVT_OK);
		hold_for(&other, 6);
	}
	ck_assert_int_le(the_daemon.misses - before, 20 + 4); /* alice is looked at each 7.5 s, not each time */
	ck_assert_int_eq(scene_put_of(&ours, 50, &alice), KVT_OK);
	erase(&ours, &alice);
	hold_for(&other, 100);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert(heard_of(&other, &alice));
}
END_TEST

/* No request comes: the tier looks by the clock at what its caller holds, and at nothing else. */
START_TEST(a_look_by_the_clock)
{
	int before;

	know();
	erase(&ours, &alice);
	before = the_daemon.leases + the_daemon.misses;
	for (int i = 0; i < 30; i++) {
		other.ahead_ns += SECOND;
		scene_step(&other, 3);
	}
	ck_assert_int_eq(the_daemon.leases + the_daemon.misses, before); /* nothing is held */
	ck_assert_uint_eq(other.taken, 0);
	hold_for(&other, 100);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert(heard_of(&other, &alice));
	ck_assert_int_ge(the_daemon.leases + the_daemon.misses - before, 2);
	ck_assert_int_le(the_daemon.leases + the_daemon.misses - before, 4); /* the tenant and all, each 7.5 s */
	/* A mark that is not there is nothing to be made by a look, nor an erase. */
	fake_forget(&the_daemon, "epoch-");
	before = the_daemon.puts;
	hold_for(&other, 100);
	ck_assert_int_eq(the_daemon.puts, before);
	ck_assert_uint_eq(other.taken, 1);
	ck_assert_int_eq(scene_put_of(&other, 7, &alice), KVT_OK);
	ck_assert_int_eq(scene_get(&other, 7), KVT_OK);
}
END_TEST

/* While the daemon is away, one look a second. */
START_TEST(looks_at_a_daemon_that_is_away)
{
	uint64_t before;

	know();
	scene_wait_no_lease(&other);
	fake_deafen(&the_daemon);
	fake_hang_up(&the_daemon);
	other.ahead_ns += SEEN_OVER;
	before = scene_stats(&other).io_errors;
	hold_for(&other, 100);
	ck_assert_uint_ge(scene_stats(&other).io_errors - before, 1);
	ck_assert_uint_le(scene_stats(&other).io_errors - before, 15);
	fake_listen(&the_daemon);
}
END_TEST

/* However long the daemon takes to drop what was erased: others are to hear of it soon. */
START_TEST(dropping_is_bounded_in_time)
{
	size_t erased;

	know();
	atomic_store(&the_daemon.faults.can_forget, 1000);
	ck_assert_int_eq(ours.tier->ops->erase_tenant(ours.tier, &alice, &erased), KVT_OK);
	while (the_daemon.forgets < 3)
		scene_step(&ours, 1);
	ours.ahead_ns += 2 * SECOND;
	ck_assert_int_eq(scene_flush(&ours), KVT_OK);
	ck_assert_int_lt(the_daemon.forgets, 200);
	other.ahead_ns += SEEN_OVER;
	ck_assert_int_eq(scene_get(&other, 1), KVT_MISS);
	ck_assert_uint_eq(other.taken, 1);
}
END_TEST

START_TEST(a_mark)
{
	struct kvtierd_mark mark = {.kind = KVTIERD_EPOCH_TENANT,
		.tenant = alice,
		.value = 5,
		.written_wall_ns = 6,
		.erase = UINT64_MAX - 1,
		.erased_wall_ns = 7},
			    read;
	uint8_t bytes[KVTIERD_MARK];

	memset(&mark.fingerprint, 0x5f, sizeof(mark.fingerprint));
	kvtierd_mark_encode(&mark, bytes);
	ck_assert_int_eq(kvtierd_mark_decode(bytes, &read), KVT_OK);
	ck_assert_uint_eq(read.value, 5);
	ck_assert_uint_eq(read.erase, UINT64_MAX - 1);
	ck_assert_int_eq(read.erased_wall_ns, 7);
	ck_assert_int_eq(read.written_wall_ns, 6);
	bytes[KVTIERD_MARK - 1] ^= 1;
	ck_assert_int_eq(kvtierd_mark_decode(bytes, &read), KVT_ECORRUPT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kvtierd elsewhere");
	TCase *both = tcase_create("both"), *one = tcase_create("one");

	tcase_add_checked_fixture(both, open_both, close_both);
	tcase_set_timeout(both, 120);
	tcase_add_test(both, an_erase_is_heard_of_once);
	tcase_add_test(both, what_was_put_before_is_not_stored_after);
	tcase_add_loop_test(both, a_lost_mark_is_no_erase, 0, 2);
	tcase_add_test(both, a_lost_erase_is_told_by_who_knows_it);
	tcase_add_test(both, a_mark_without_an_erase_says_nothing);
	tcase_add_test(both, the_first_look);
	tcase_add_loop_test(both, an_old_erase_in_a_mark_that_was_replaced, 0, 2);
	tcase_add_test(both, an_erase_from_before_the_last_is_no_news);
	tcase_add_test(both, two_own_erases_during_a_look);
	tcase_add_test(both, two_erases_at_once);
	tcase_add_test(both, an_erase_while_a_chunk_takes_the_number);
	tcase_add_loop_test(both, an_erase_without_a_look, 0, 2);
	tcase_add_test(both, held_tenants_have_room);
	tcase_add_test(both, a_look_by_the_clock);
	tcase_add_test(both, looks_at_a_daemon_that_is_away);
	tcase_add_test(both, dropping_is_bounded_in_time);
	tcase_add_test(one, a_mark);
	suite_add_tcase(suite, both);
	suite_add_tcase(suite, one);
	return run_suite(suite);
}
