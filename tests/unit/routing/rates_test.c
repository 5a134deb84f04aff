/*
 * rates_test.c - prefill rates from times to first token, on workers whose true rates are known.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "routing/rates.h"
#include "support.h"
#include "tests/unit/suite.h"

#define PRIOR 8000.0 /* tokens per second */
#define PAIR  1.75   /* ns per pair of tokens on a worker of the typical rate */

/* A worker as it really is. */
struct machine {
	double rate;        /* tokens per second */
	double pair_ns;     /* attention, ns per pair */
	double overhead_ns; /* of each request */
	double noise_ns;    /* up to so much more: the step that runs when a request comes */
	double congested;   /* part of the requests that take up to ten times as long */
};

static struct kvw_rates rates;
static uint64_t dice;

static void setup(void)
{
	struct kvw_prefill_model prior = {.ns_per_token = 1e9 / PRIOR, .ns_per_pair = PAIR};

	dice = 1;
	ck_assert_int_eq(kvw_rates_init(&rates, &prior), KVW_OK);
}

static void teardown(void)
{
	kvw_rates_finish(&rates);
}

static double fraction(void)
{
	return (double)(test_random(&dice) >> 11) / (double)(UINT64_C(1) << 53);
}

static double true_ns(const struct machine *m, double length, double hit)
{
	return m->overhead_ns + (length - hit) * 1e9 / m->rate +
	       m->pair_ns * (length * length - hit * hit) / 2;
}

/* One request of `length` tokens of which `hit` are cached. */
static void serve(uint32_t worker, const struct machine *m, double length, double hit)
{
	double ns = true_ns(m, length, hit) + fraction() * m->noise_ns;

	if (fraction() < m->congested)
		ns *= 1 + 9 * fraction();
	kvw_rates_learn(&rates, &(struct kvw_rate_sample){worker, length, hit, (int64_t)ns, true});
}

/* Lengths as in practice: short, long, and mostly cached ones. */
static void serve_mixed(uint32_t worker, const struct machine *m, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		double length = 100 * pow(100, fraction());
		double hit = fraction() < 0.5 ? 0 : floor(length * fraction());

		serve(worker, m, floor(length), hit);
	}
}

/* The rate without the overhead that costs allow for. The prior is returned as it is while nothing has
 * been learned. */
static double rate_of(uint32_t worker)
{
	double rate = 1e9 / kvw_rates_x(&rates, worker);

	return fabs(rate / PRIOR - 1) < 1e-6 ? rate : rate * KVW_RATES_OVERHEAD;
}

/* Time for a prompt, likewise. */
static double predict(uint32_t worker, double length, double hit)
{
	double x = kvw_rates_x(&rates, worker);
	double charged = kvw_rates_work(atomic_load(&rates.pairs), length, hit) * x;

	return charged - (length - hit) * (x - 1e9 / rate_of(worker));
}

static struct kvw_worker_learned learned(uint32_t worker)
{
	struct kvw_worker_learned out = {0};

	kvw_rates_learned(&rates, worker, &out);
	return out;
}

#define WITHIN(value, truth, part) EXPECT(fabs((value) / (truth)-1) <= (part))

START_TEST(without_samples_the_prior_holds)
{
	WITHIN(rate_of(0), PRIOR, 1e-6);
	WITHIN(rate_of(KVW_MAX_WORKERS - 1), PRIOR, 1e-6);
	ck_assert_double_eq(learned(0).observed_tokens_per_second, 0);
	ck_assert_uint_eq(learned(0).rate_samples, 0);
}
END_TEST

START_TEST(eight_samples_make_a_rate)
{
	struct machine m = {20480, PAIR, 0, 0, 0};

	for (unsigned i = 0; i < KVW_RATES_LEAST - 1; i++)
		serve(3, &m, 2000, 0);
	WITHIN(rate_of(3), PRIOR, 1e-6);
	serve(3, &m, 2000, 0);
	EXPECT(rate_of(3) > 15000);
	ck_assert_uint_eq(learned(3).rate_samples, KVW_RATES_LEAST);
	for (unsigned i = 0; i < 200; i++)
		serve(3, &m, 2000, 0);
	ck_assert_uint_eq(learned(3).rate_samples, KVW_RATES_WINDOW);
	WITHIN(rate_of(3), 20480, 0.02);
}
END_TEST

/* Over a wide range of machines, with a fixed overhead, waiting for the running step, attention,
 * cached prefixes and congestion that was not seen: within 15 % of the true rate, and predicted
 * times of long prompts within 15 % of the true ones. */
START_TEST(true_rate_is_found)
{
	static const double true_rates[] = {1000, 3000, 8000, 20480, 60000, 110000};

	for (size_t i = 0; i < 6; i++)
		for (unsigned seed = 0; seed < 20; seed++) {
			/* Attention is configured for the typical worker, which this one is. */
			struct machine m = {
				true_rates[i], PAIR, 12e6, 12e6, seed % 2 == 0 ? 0 : 0.3};

			teardown();
			setup();
			dice = seed * 77 + i;
			serve_mixed(0, &m, 600);
			WITHIN(learned(0).observed_tokens_per_second, m.rate, 0.15);
			WITHIN(predict(0, 16000, 2000), true_ns(&m, 16000, 2000) - m.overhead_ns,
				0.15);
		}
}
END_TEST

/* Prompts of one length: what one of them takes, all included, is predicted. */
START_TEST(equal_prompts_predict_themselves)
{
	struct machine m = {20480, PAIR, 12e6, 1e6, 0};

	for (unsigned i = 0; i < 100; i++)
		serve(0, &m, 600, 0);
	WITHIN(predict(0, 600, 0), true_ns(&m, 600, 0), 0.1);
}
END_TEST

/* Requests that compute next to nothing teach the overhead and never a rate. */
START_TEST(short_requests_make_no_rate)
{
	struct machine m = {20480, PAIR, 12e6, 1e6, 0};

	for (unsigned i = 0; i < 500; i++)
		serve(0, &m, 4000, 4000 - 1 - floor(fraction() * 200));
	ck_assert_double_eq(learned(0).observed_tokens_per_second, 0);
	WITHIN(rate_of(0), PRIOR, 1e-6);
}
END_TEST

/* One worker three times slower has its own rate; the equal ones count as equal, and a worker
 * without samples is like most. */
START_TEST(mixed_fleet)
{
	struct machine fast = {20480, PAIR, 12e6, 6e6, 0.1};
	struct machine slow = {20480 / 3.0, PAIR * 3, 36e6, 18e6, 0.1};

	for (unsigned round = 0; round < 40; round++)
		for (uint32_t w = 0; w < 7; w++)
			serve_mixed(w, w == 5 ? &slow : &fast, 8);
	for (uint32_t w = 0; w < 7; w++)
		WITHIN(learned(w).observed_tokens_per_second, w == 5 ? slow.rate : fast.rate, 0.15);
	WITHIN(rate_of(0) / rate_of(5), 3, 0.2);
	for (uint32_t w = 1; w < 8; w++)
		if (w != 5)
			ck_assert_double_eq(rate_of(w), rate_of(0));
	WITHIN(rate_of(500), fast.rate, 0.15);
}
END_TEST

/* A prompt of 64K tokens on the slow worker: its attention is slower, too. */
START_TEST(attention_follows_the_rate)
{
	struct machine fast = {20480, PAIR, 0, 0, 0};
	struct machine slow = {20480 / 3.0, PAIR * 3, 0, 0, 0};

	for (unsigned round = 0; round < 40; round++) {
		serve_mixed(0, &fast, 8);
		serve_mixed(1, &fast, 8);
		serve_mixed(2, &slow, 8);
	}
	for (uint32_t w = 0; w < 3; w++)
		WITHIN(predict(w, 65536, 0), true_ns(w == 2 ? &slow : &fast, 65536, 0), 0.1);
}
END_TEST

/* Never alone, computed in batches of up to four whose first tokens come together: the sum of times
 * is right, single ones are not. */
START_TEST(a_busy_worker_teaches_its_rate_too)
{
	static const double true_rates[] = {2000, 6800, 20480};

	for (size_t i = 0; i < 3; i++)
		for (unsigned seed = 0; seed < 20; seed++) {
			teardown();
			setup();
			dice = seed;
			for (unsigned step = 0; step < 100; step++) {
				unsigned batch = 1 + (unsigned)(test_random(&dice) % 4);
				double ns = 12e6;
				double lengths[4];

				for (unsigned k = 0; k < batch; k++) {
					lengths[k] = 500 + floor(fraction() * 6000);
					ns += lengths[k] * 1e9 / true_rates[i] +
					      PAIR * lengths[k] * lengths[k] / 2;
				}
				for (unsigned k = 0; k < batch; k++)
					kvw_rates_learn(
						&rates, &(struct kvw_rate_sample){0, lengths[k], 0,
								k == 0 ? (int64_t)ns : 0, false});
			}
			WITHIN(learned(0).observed_tokens_per_second, true_rates[i], 0.1);
		}
}
END_TEST

/* One of ten that was alone is enough to set a better rate. */
START_TEST(better_samples_count_before_those_of_a_busy_worker)
{
	struct machine m = {20480, PAIR, 12e6, 0, 0};

	for (unsigned i = 0; i < 400; i++) {
		double length = 1000 + floor(fraction() * 3000);
		int64_t ns = (int64_t)(true_ns(&m, length, 0) * 1.5); /* with others' decoding */

		if (i % 4 == 0)
			serve(0, &m, length, i % 8 == 0 ? length - 100 : 0);
		kvw_rates_learn(&rates, &(struct kvw_rate_sample){0, length, 0, ns, false});
	}
	WITHIN(learned(0).observed_tokens_per_second, m.rate, 0.15);
}
END_TEST

START_TEST(changed_rate_is_followed)
{
	struct machine before = {20480, PAIR, 12e6, 0, 0};
	struct machine after = {5000, PAIR * 4, 12e6, 0, 0};

	serve_mixed(0, &before, 300);
	WITHIN(rate_of(0), before.rate, 0.15);
	serve_mixed(0, &after, 900);
	EXPECT(rate_of(0) < 6500 && rate_of(0) > 3500);
}
END_TEST

START_TEST(restart_keeps_the_rate_until_there_are_samples)
{
	struct machine before = {20480, PAIR, 12e6, 0, 0};
	struct machine after = {60000, PAIR, 2e6, 0, 0};

	serve_mixed(0, &before, 300);
	kvw_rates_restart(&rates, 0);
	ck_assert_uint_eq(learned(0).rate_samples, 0);
	WITHIN(rate_of(0), before.rate, 0.15);
	serve_mixed(0, &after, 100);
	WITHIN(rate_of(0), after.rate, 0.25);
	kvw_rates_restart(&rates, 999);
	ck_assert_uint_eq(learned(999).rate_samples, 0);
}
END_TEST

/* Whatever is measured, rates stay within their limits and are numbers. */
START_TEST(nonsense_stays_within_limits)
{
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t worker = (uint32_t)(test_random(&dice) % 4);
		double length = (double)(test_random(&dice) % 200000);
		struct kvw_rate_sample sample = {worker, length, length,
			(int64_t)(test_random(&dice) >> (test_random(&dice) % 64)) - 5, i % 5 != 0};

		if (i % 3 != 0)
			sample.cached_tokens = floor(length * fraction());
		kvw_rates_learn(&rates, &sample);
		for (uint32_t w = 0; w < 5; w++)
			EXPECT(rate_of(w) >= PRIOR / 64.1 &&
				rate_of(w) <= PRIOR * 16.1 * KVW_RATES_OVERHEAD);
		EXPECT(atomic_load(&rates.pairs) > 0);
	}
}
END_TEST

#define THREADS 4

static void *learn_beside(void *arg)
{
	uint64_t state = *(uint64_t *)arg;

	for (unsigned i = 0; i < 20000; i++) {
		double length = 300 + (double)(test_random(&state) % 4000);
		uint32_t worker = (uint32_t)(test_random(&state) % 8);

		kvw_rates_learn(&rates,
			&(struct kvw_rate_sample){worker, length, 0,
				(int64_t)(length * 1e9 / 20480), test_random(&state) % 2 == 0});
		EXPECT(rate_of(worker) > 0);
		if (test_random(&state) % 1000 == 0)
			kvw_rates_restart(&rates, worker);
		if (test_random(&state) % 100 == 0)
			EXPECT(learned(worker).rate_samples <= KVW_RATES_WINDOW);
	}
	return NULL;
}

START_TEST(threads_learn_together)
{
	pthread_t threads[THREADS];
	uint64_t seeds[THREADS];

	for (uint64_t i = 0; i < THREADS; i++) {
		seeds[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, learn_beside, &seeds[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	WITHIN(rate_of(0), 20480, 0.3);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("rates");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, without_samples_the_prior_holds);
	tcase_add_test(tcase, eight_samples_make_a_rate);
	tcase_add_test(tcase, true_rate_is_found);
	tcase_add_test(tcase, equal_prompts_predict_themselves);
	tcase_add_test(tcase, short_requests_make_no_rate);
	tcase_add_test(tcase, mixed_fleet);
	tcase_add_test(tcase, attention_follows_the_rate);
	tcase_add_test(tcase, a_busy_worker_teaches_its_rate_too);
	tcase_add_test(tcase, better_samples_count_before_those_of_a_busy_worker);
	tcase_add_test(tcase, changed_rate_is_followed);
	tcase_add_test(tcase, restart_keeps_the_rate_until_there_are_samples);
	tcase_add_test(tcase, nonsense_stays_within_limits);
	tcase_add_test(tcase, threads_learn_together);
	tcase_set_timeout(tcase, 60);
	return run_tcase("rates", tcase);
}
