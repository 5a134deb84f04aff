/*
 * found.h - what a source reported: the last list and failure as texts, and how often each.
 */
#ifndef TESTS_DISCOVERY_FOUND_H
#define TESTS_DISCOVERY_FOUND_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <event2/event.h>

#include "base/clock.h"
#include "fleet/discovery/source.h"
#include "kvway/route.h"

struct found {
	size_t lists, failures, count;
	bool partial; /* of the last list */
	char urls[65536]; /* one after another, with blanks; models of each in brackets */
	char why[512];
};

static inline void found_write(
	struct found *found, const struct kvw_worker_config *workers, size_t count)
{
	size_t used = 0;

	found->count = count;
	found->urls[0] = '\0';
	for (size_t i = 0; i < count && used < sizeof(found->urls) - 256; i++) {
		ck_assert_ptr_nonnull(workers[i].api_key); /* complete */
		used += (size_t)sprintf(
			found->urls + used, "%s%s", i > 0 ? " " : "", workers[i].url);
		for (size_t k = 0; k < workers[i].models.count; k++)
			used += (size_t)sprintf(found->urls + used, "%s%s%s", k == 0 ? "[" : ",",
				workers[i].models.items[k],
				k + 1 == workers[i].models.count ? "]" : "");
	}
}

static inline void on_found(void *arg, const struct kvw_source_ops *source,
	const struct kvw_worker_config *workers, size_t count, bool partial, const char *why)
{
	struct found *found = arg;

	ck_assert_ptr_nonnull(source);
	if (why != NULL) {
		ck_assert_ptr_null(workers);
		ck_assert_uint_eq(count, 0);
		snprintf(found->why, sizeof(found->why), "%s", why);
		found->failures++;
		return;
	}
	found->lists++;
	found->partial = partial;
	found_write(found, workers, count);
}

/* Turns the loop until *counter has reached a value. */
static inline void turn_until(struct event_base *base, const size_t *counter, size_t value)
{
	int64_t until = kvw_clock_ns() + 20 * KVW_NS_PER_S;

	while (*counter < value && kvw_clock_ns() < until) {
		event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
		nanosleep(&(struct timespec){.tv_nsec = KVW_NS_PER_MS / 2}, NULL);
	}
	ck_assert_uint_ge(*counter, value);
}

static inline void turn_for(struct event_base *base, int64_t ms)
{
	int64_t until = kvw_clock_ns() + ms * KVW_NS_PER_MS;

	while (kvw_clock_ns() < until) {
		event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
		nanosleep(&(struct timespec){.tv_nsec = KVW_NS_PER_MS}, NULL);
	}
}

/* A configuration with these lines below `discovery:`. */
static inline struct kvw_config *config_with(const char *lines)
{
	struct kvw_config *config = NULL;
	char *text = NULL;
	size_t len;

	len = (size_t)asprintf(&text, "workers: [{url: http://h:1}]\ndiscovery:\n%s", lines);
	ck_assert_int_eq(
		kvw_config_parse("test.yaml", text, len, kvw_strategies, stderr, &config), KVW_OK);
	free(text);
	return config;
}

#endif
