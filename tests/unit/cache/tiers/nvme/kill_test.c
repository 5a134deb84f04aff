/*
 * kill_test.c - kill -9 at random moments under mixed load, over real files, then reopened and
 * verified.
 *
 * A child works on a store and reports to its parent through a pipe what it begins and what was
 * acknowledged; the parent kills it, opens the store itself and judges: right bytes or none, what
 * was erased durably stays away, what was announced is there (nothing is evicted here).
 *
 * Without arguments a few rounds, as a unit test. By command:
 *     kvt_nvme_kill_test --rounds 500 [--seed 1]
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store.h"
#include "tests/unit/suite.h"

#define KEYS 60

/* What the child says. Written whole, since it is smaller than a pipe's atomic size. */
struct word {
	char what; /* P put begun, D durable, E erase begun, F erase durable */
	uint64_t n;
};

/* What the parent knows of a chunk. */
struct known {
	bool durable, erased; /* by the last word about it */
};

struct round_result {
	uint64_t found, must, must_not, corrupt;
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) % below;
}

static void say(int fd, char what, uint64_t n)
{
	struct word w = {.what = what, .n = n};

	if (write(fd, &w, sizeof(w)) != (ssize_t)sizeof(w))
		_exit(3);
}

static void child(struct store *s, int fd, uint64_t seed)
{
	if (store_open(s) != KVT_OK)
		_exit(4);
	for (;;) {
		uint64_t n = 1 + draw(&seed, KEYS);
		struct kvt_item item = {.size = sizeof(item), .tokens = 256, .bytes = bytes_of(n)};
		bool announce = draw(&seed, 2) == 0;
		enum kvt_status status;

		switch (draw(&seed, 6)) {
		case 0:
			say(fd, 'E', n);
			(void)store_erase(s, n);
			if (store_flush(s) == KVT_OK)
				say(fd, 'F', n);
			break;
		case 1:
			(void)store_get(s, n);
			break;
		default:
			say(fd, 'P', n);
			status = store_put_item(s, n, &item, announce);
			if (announce && status == KVT_OK)
				say(fd, 'D', n);
			break;
		}
	}
}

static void learn(struct known *known, const struct word *w)
{
	struct known *k = &known[w->n];

	switch (w->what) {
	case 'P':
		k->erased = false;
		break;
	case 'D':
		*k = (struct known){.durable = true};
		break;
	case 'E':
		k->durable = false;
		break;
	default:
		*k = (struct known){.erased = true};
		break;
	}
}

static void judge(struct store *s, const struct known *known, struct round_result *out)
{
	for (uint64_t n = 1; n <= KEYS; n++) {
		const struct known *k = &known[n];
		enum kvt_status status = store_get(s, n);

		out->found += status == KVT_OK;
		out->corrupt += status == KVT_ECORRUPT;
		out->must += k->durable;
		out->must_not += k->erased;
		if (k->durable && status != KVT_OK) {
			fprintf(stderr, "WRONG: chunk %llu was durable and is lost\n",
				(unsigned long long)n);
			abort();
		}
		if (k->erased && status == KVT_OK) {
			fprintf(stderr, "WRONG: chunk %llu was erased and is back\n",
				(unsigned long long)n);
			abort();
		}
	}
}

static void one_round(struct store *s, struct known *known, uint64_t seed, struct round_result *out)
{
	struct timespec pause = {.tv_nsec = (long)draw(&seed, 60000000)};
	struct word w;
	int fds[2], status;
	pid_t pid;

	if (pipe(fds) != 0 || (pid = fork()) < 0)
		abort();
	if (pid == 0) {
		(void)close(fds[0]);
		child(s, fds[1], seed);
	}
	(void)close(fds[1]);
	if (read(fds[0], &w, sizeof(w)) == (ssize_t)sizeof(w)) { /* the store is open */
		struct pollfd p = {.fd = fds[0], .events = POLLIN};
		struct timespec begun, now;

		learn(known, &w);
		(void)clock_gettime(CLOCK_MONOTONIC, &begun);
		do {
			if (poll(&p, 1, 1) > 0 && read(fds[0], &w, sizeof(w)) == (ssize_t)sizeof(w))
				learn(known, &w);
			(void)clock_gettime(CLOCK_MONOTONIC, &now);
		} while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec <
			 pause.tv_nsec);
	}
	(void)kill(pid, SIGKILL);
	while (read(fds[0], &w, sizeof(w)) == (ssize_t)sizeof(w))
		learn(known, &w);
	(void)close(fds[0]);
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		abort(); /* it ended by itself: a wrong byte, or the store did not open */
	if (store_open(s) != KVT_OK)
		abort();
	judge(s, known, out);
	store_close(s);
}

static struct round_result run(unsigned rounds, uint64_t seed)
{
	struct known known[KEYS + 1] = {0};
	struct round_result result = {0};
	struct store s;

	store_init(&s);
	s.config.nvme_sync_ns = 20000000;
	s.more_bytes = 400000; /* chunks of two or three pieces */
	for (unsigned i = 0; i < rounds; i++)
		one_round(&s, known, seed * 1000003 + i, &result);
	store_finish(&s);
	return result;
}

START_TEST(killed_at_any_moment)
{
	struct round_result result = run(12, 1);

	ck_assert_uint_gt(result.found, 0);
	ck_assert_uint_gt(result.must, 0);
}
END_TEST

static int by_command(int argc, char **argv)
{
	unsigned rounds = 500;
	uint64_t seed = 1;
	struct round_result r;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 10);
		else
			return EXIT_FAILURE;
	}
	r = run(rounds, seed);
	printf("{\"rounds\": %u, \"chunks_found\": %llu, \"dropped_as_corrupt\": %llu, "
	       "\"had_to_be_there\": %llu, \"had_to_be_gone\": %llu, \"wrong\": 0}\n",
		rounds, (unsigned long long)r.found, (unsigned long long)r.corrupt,
		(unsigned long long)r.must, (unsigned long long)r.must_not);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("kill");

	if (argc > 1)
		return by_command(argc, argv);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, killed_at_any_moment);
	return run_tcase("cache-tiers-kill", tc);
}
