/*
 * linear.h - does the work on a client's bytes grow as they do?
 *
 * A text is run at a size and at 32 times that. CPU time of the thread counts, the least of some runs, so that a busy
 * machine changes little: linear work takes about 32 times as long, twice that where memory no longer fits the
 * processor's caches; quadratic work takes 1,000 times as long.
 */
#ifndef KVW_TEST_LINEAR_H
#define KVW_TEST_LINEAR_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINEAR_SMALL ((size_t)16 << 10)
#define LINEAR_TIMES 32
#define LINEAR_RUNS  3
#define LINEAR_SLACK_NS 1e6 /* what a short run may be off by */

/* before, then `unit` again and again, then after. A '#' of the unit is its number. */
struct linear_shape {
	int kind; /* for `run` */
	const char *before, *unit, *after;
};

typedef void linear_run_fn(int kind, const char *text, size_t len);

static inline char *linear_text(const struct linear_shape *shape, size_t bytes, size_t *len)
{
	char *text = malloc(bytes + strlen(shape->before) + strlen(shape->unit) * 8 + strlen(shape->after) + 64);
	size_t n = strlen(strcpy(text, shape->before));

	for (size_t i = 0; n < bytes; i++)
		for (const char *at = shape->unit; *at != '\0'; at++) {
			if (*at == '#')
				n += (size_t)sprintf(text + n, "%zu", i);
			else
				text[n++] = *at;
		}
	if (shape->unit[strlen(shape->unit) - 1] == ',')
		n--;
	strcpy(text + n, shape->after);
	*len = n + strlen(shape->after);
	return text;
}

static inline double linear_cost_ns(linear_run_fn *run, const struct linear_shape *shape, size_t bytes)
{
	struct timespec begin, end;
	double least = 1e18;
	size_t len;
	char *text = linear_text(shape, bytes, &len);

	for (int i = 0; i < LINEAR_RUNS; i++) {
		double ns;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
		run(shape->kind, text, len);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
		ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
		least = ns < least ? ns : least;
	}
	free(text);
	return least;
}

static inline void check_linear(linear_run_fn *run, const struct linear_shape *shape)
{
	double small = linear_cost_ns(run, shape, LINEAR_SMALL);
	double large = linear_cost_ns(run, shape, LINEAR_SMALL * LINEAR_TIMES);

	ck_assert_msg(large <= 6 * LINEAR_TIMES * small + LINEAR_SLACK_NS,
		"%s%s... kind=%d: %.2f ms, and %.2f ms for %d times as much", shape->before, shape->unit, shape->kind,
		small / 1e6, large / 1e6, LINEAR_TIMES);
}

#endif
