/*
 * resolver.c - watches the addresses of host names; resolver.h has the rules.
 *
 * A watch is not used any more after `found` was called, since `found` may free it.
 */
#include "fleet/resolver.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <event2/event.h>

#include "fleet/dns.h"

#define LEAST_S       1
#define MOST_S        30
#define RETRY_MS      500
#define RETRY_MOST_MS 10000

struct kvw_resolver_watch {
	LIST_ENTRY(kvw_resolver_watch) entry;
	struct kvw_resolver *resolver;
	kvw_resolver_found_fn *found;
	void *arg;
	struct event *again;
	struct kvw_dns_question *question;  /* open; NULL: none */
	struct sockaddr_storage *addresses; /* the addresses that were reported last; owned */
	size_t count;
	uint32_t delay_ms; /* time until the next try after a failure */
	bool failing;      /* the last answer was a failure, which is reported */
	uint16_t port;
	char host[];
};

struct kvw_resolver {
	struct event_base *base; /* borrowed */
	struct kvw_dns *dns;
	/* the caller's options with defaults filled in; its member dns is not kept */
	struct kvw_resolver_options options;
	LIST_HEAD(, kvw_resolver_watch) watches;
};

static uint32_t or_usual(uint32_t value, uint32_t usual)
{
	return value != 0 ? value : usual;
}

enum kvw_err kvw_resolver_create(struct event_base *base,
	const struct kvw_resolver_options *options, struct kvw_resolver **out)
{
	const struct kvw_resolver_options usual = {0};
	struct kvw_resolver *resolver = calloc(1, sizeof(*resolver));
	enum kvw_err err;

	if (resolver == NULL)
		return KVW_ENOMEM;
	if (options == NULL)
		options = &usual;
	resolver->base = base;
	resolver->options =
		(struct kvw_resolver_options){.least_s = or_usual(options->least_s, LEAST_S),
			.most_s = or_usual(options->most_s, MOST_S),
			.retry_ms = or_usual(options->retry_ms, RETRY_MS),
			.retry_most_ms = or_usual(options->retry_most_ms, RETRY_MOST_MS)};
	LIST_INIT(&resolver->watches);
	err = kvw_dns_create(base, options->dns, &resolver->dns);
	if (err != KVW_OK) {
		free(resolver);
		return err;
	}
	*out = resolver;
	return KVW_OK;
}

void kvw_resolver_destroy(struct kvw_resolver *resolver)
{
	if (resolver == NULL)
		return;
	while (!LIST_EMPTY(&resolver->watches))
		kvw_resolver_unwatch(LIST_FIRST(&resolver->watches));
	kvw_dns_destroy(resolver->dns);
	free(resolver);
}

static void set_again(struct kvw_resolver_watch *watch, uint64_t ms)
{
	const struct timeval delay = {
		.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

	event_add(watch->again, &delay);
}

static void failed(struct kvw_resolver_watch *watch, const char *why)
{
	const struct kvw_resolver_options *options = &watch->resolver->options;
	bool first = !watch->failing;

	watch->delay_ms = watch->delay_ms == 0 ? options->retry_ms : watch->delay_ms * 2;
	if (watch->delay_ms > options->retry_most_ms)
		watch->delay_ms = options->retry_most_ms;
	set_again(watch, watch->delay_ms);
	watch->failing = true;
	if (first)
		watch->found(watch->arg, NULL, 0, why);
}

static bool has_family(const struct kvw_dns_answer *answer, sa_family_t family)
{
	for (size_t i = 0; i < answer->address_count; i++)
		if (answer->addresses[i].ss_family == family)
			return true;
	return false;
}

/* Returns the addresses of an answer, on the heap, with the former ones of a kind whose query
 * failed. */
static struct sockaddr_storage *list_of(
	const struct kvw_resolver_watch *watch, const struct kvw_dns_answer *answer, size_t *count)
{
	size_t room = answer->address_count + (answer->half ? watch->count : 0);
	struct sockaddr_storage *list = calloc(room, sizeof(*list));
	size_t used = answer->address_count;

	if (list == NULL)
		return NULL;
	memcpy(list, answer->addresses, used * sizeof(*list));
	if (answer->half)
		for (size_t i = 0; i < watch->count; i++)
			if (!has_family(answer, watch->addresses[i].ss_family))
				list[used++] = watch->addresses[i];
	*count = kvw_dns_order(list, used);
	return list;
}

static void ask_again_after(struct kvw_resolver_watch *watch, uint32_t ttl_s)
{
	const struct kvw_resolver_options *options = &watch->resolver->options;

	if (ttl_s == KVW_DNS_STAY)
		return;
	ttl_s = ttl_s < options->least_s ? options->least_s : ttl_s;
	ttl_s = ttl_s > options->most_s ? options->most_s : ttl_s;
	set_again(watch, ttl_s * UINT64_C(1000));
}

static void on_answer(void *arg, const struct kvw_dns_answer *answer)
{
	struct kvw_resolver_watch *watch = arg;
	struct sockaddr_storage *list;
	size_t count = 0;
	bool same;

	watch->question = NULL;
	if (answer->verdict != KVW_DNS_FOUND) {
		failed(watch, answer->why);
		return;
	}
	list = list_of(watch, answer, &count);
	if (list == NULL) {
		failed(watch, "out of memory");
		return;
	}
	same = !watch->failing && count == watch->count &&
	       memcmp(list, watch->addresses, count * sizeof(*list)) == 0;
	free(watch->addresses);
	watch->addresses = list;
	watch->count = count;
	watch->failing = false;
	watch->delay_ms = 0;
	ask_again_after(watch, answer->ttl_s);
	if (!same)
		watch->found(watch->arg, list, count, NULL);
}

static void ask_resolver(struct kvw_resolver_watch *watch)
{
	if (kvw_dns_ask_host(watch->resolver->dns, watch->host, watch->port, on_answer, watch,
		    &watch->question) != KVW_OK)
		failed(watch, "out of memory");
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	ask_resolver(arg);
}

enum kvw_err kvw_resolver_watch(struct kvw_resolver *resolver, const char *host, uint16_t port,
	kvw_resolver_found_fn *found, void *arg, struct kvw_resolver_watch **out)
{
	size_t len = strlen(host) + 1;
	struct kvw_resolver_watch *watch = calloc(1, sizeof(*watch) + len);

	if (watch == NULL)
		return KVW_ENOMEM;
	watch->resolver = resolver;
	watch->found = found;
	watch->arg = arg;
	watch->port = port;
	memcpy(watch->host, host, len);
	watch->again = event_new(resolver->base, -1, 0, on_again, watch);
	if (watch->again == NULL) {
		free(watch);
		return KVW_ENOMEM;
	}
	LIST_INSERT_HEAD(&resolver->watches, watch, entry);
	*out = watch;
	if (!kvw_dns_at_hand(resolver->dns, watch->host, port, on_answer, watch))
		ask_resolver(watch);
	return KVW_OK;
}

void kvw_resolver_unwatch(struct kvw_resolver_watch *watch)
{
	if (watch == NULL)
		return;
	LIST_REMOVE(watch, entry);
	kvw_dns_drop(watch->question);
	event_free(watch->again);
	free(watch->addresses);
	free(watch);
}

void kvw_resolver_hurry(struct kvw_resolver_watch *watch)
{
	if (watch->question == NULL)
		event_active(watch->again, EV_TIMEOUT, 1);
}
