/*
 * dns_source.c - workers from names of the DNS (`discovery.dns`).
 *
 * A name of the form http://NAME:PORT is one worker for each of its addresses;
 * srv://_http._tcp.NAME one for each target of its SRV records, at the target's port and first
 * address (IPv4 first): a target is one host. Priority and weight are ignored, since kvway itself
 * balances. The list covers all names, ordered by URL, each once. It is first reported when every
 * name has had an answer of any kind, so that a start does not look like workers that join one by
 * one.
 *
 * A name is resolved again when the least TTL of its records has passed, between
 * discovery.dns_least and discovery.dns_most.
 *
 * An answer without a worker removes it, but an outage of the DNS must not: so
 * - SERVFAIL, refusals, timeouts and malformed answers change nothing, however long they last; the
 *   list before stays in force, with a warning;
 * - NXDOMAIN and "no such records" are what a name server says of a service without ready pods, and
 *   also what a restarted one says before it has its data: such an answer empties the list of its
 *   name when it comes twice in a row, the second time no sooner than discovery.dns_least after the
 *   first;
 * - if only one kind of addresses could be asked for, those of the other kind stay.
 */
#include "fleet/discovery/dns_source.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <event2/event.h>

#include "base/log.h"
#include "config/discovery_url.h"
#include "fleet/discovery/worker_list.h"

#define ROOM       "discovery"
#define NONE_TWICE 2
#define ASKED_MOST 32 /* targets of one name that are resolved at the same time */
#define URL_ROOM   512

struct name;

/* One target of SRV records. */
struct target {
	struct name *name;
	struct kvw_dns_target to;
	struct kvw_dns_question *question; /* open; else NULL */
	struct sockaddr_storage address;   /* family AF_UNSPEC: no address is known */
};

/* One entry of discovery.dns. */
struct name {
	struct dns_source *source;
	char *text;                   /* as configured; owned */
	struct kvw_discovery_url url; /* borrows from text */
	char host[KVW_DNS_HOST];
	struct event *again;
	struct kvw_dns_question *question;  /* open; else NULL */
	struct sockaddr_storage *addresses; /* the addresses in force, with ports; owned */
	size_t count;
	/* targets: those being resolved; before: those in force. Both owned */
	struct target *targets, *before;
	size_t target_count, before_count;
	/* next: index of the next target to resolve; open: questions under way */
	size_t next, open;
	uint32_t ttl_s;        /* least TTL of the records and of their targets */
	int64_t delay_ms;      /* time until the next try after a failure */
	unsigned none;         /* empty answers in a row */
	/* answered: at least once; failed: the last query failed, which has been reported */
	bool answered, failed;
};

struct dns_source {
	struct kvw_source base;
	kvw_source_found_fn *found;
	void *arg;
	struct kvw_dns *dns;
	int64_t least_ms, most_ms;
	char **urls; /* reported last; owned */
	size_t url_count;
	bool reported;
	size_t count;
	struct name names[];
};

static void failed_to(struct dns_source *source, const struct name *name, const char *why)
{
	char text[400];

	snprintf(text, sizeof(text), "%.200s: %s", name->text, why);
	kvw_warn(ROOM, "%s; the workers that were found before stay", text);
	source->found(source->arg, source->base.ops, NULL, 0, false, text);
}

/* --- the list of all names --- */

static void free_urls(char **urls, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(urls[i]);
	free(urls);
}

static char *url_of(const struct name *name, const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;
	bool six = address->ss_family == AF_INET6;
	char digits[INET6_ADDRSTRLEN], *url = NULL;

	inet_ntop(address->ss_family, six ? (const void *)&v6->sin6_addr : &v4->sin_addr, digits,
		sizeof(digits));
	if (asprintf(&url, "%s://%s%s%s:%u%.*s", name->url.tls ? "https" : "http", six ? "[" : "",
		    digits, six ? "]" : "", ntohs(six ? v6->sin6_port : v4->sin_port),
		    (int)name->url.prefix.len, name->url.prefix.data) < 0)
		return NULL;
	return url;
}

static int compare_urls(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Collects all URLs, ordered and each once; false: out of memory. */
static bool collect_urls(const struct dns_source *source, char ***out, size_t *count)
{
	size_t room = 1, used = 0, kept = 0;
	char **urls;

	for (size_t i = 0; i < source->count; i++)
		room += source->names[i].count;
	urls = calloc(room, sizeof(*urls));
	if (urls == NULL)
		return false;
	for (size_t i = 0; i < source->count; i++)
		for (size_t k = 0; k < source->names[i].count; k++) {
			const struct name *name = &source->names[i];

			urls[used] = url_of(name, &name->addresses[k]);
			if (urls[used++] == NULL) {
				free_urls(urls, used);
				return false;
			}
		}
	qsort(urls, used, sizeof(*urls), compare_urls);
	for (size_t i = 0; i < used; i++) {
		if (kept > 0 && strcmp(urls[kept - 1], urls[i]) == 0)
			free(urls[i]);
		else
			urls[kept++] = urls[i];
	}
	*out = urls;
	*count = kept;
	return true;
}

static bool is_reported(const struct dns_source *source, char **urls, size_t count)
{
	if (!source->reported || count != source->url_count)
		return false;
	for (size_t i = 0; i < count; i++)
		if (strcmp(urls[i], source->urls[i]) != 0)
			return false;
	return true;
}

/* Returns whether any name's last query failed, so that its former workers stay in the list. */
static bool any_failed(const struct dns_source *source)
{
	for (size_t i = 0; i < source->count; i++)
		if (source->names[i].failed)
			return true;
	return false;
}

/* Reports the list of all names if it has changed, or if a failure has ended. */
static void report_name(struct dns_source *source, const struct name *name, bool always)
{
	struct kvw_config *list = NULL;
	enum kvw_err err = KVW_ENOMEM;
	char **urls = NULL, why[80];
	size_t count = 0;

	for (size_t i = 0; i < source->count; i++)
		if (!source->names[i].answered)
			return;
	if (!collect_urls(source, &urls, &count)) {
		failed_to(source, name, "out of memory");
		return;
	}
	if (!always && is_reported(source, urls, count)) {
		free_urls(urls, count);
		return;
	}
	if (count <= KVW_MAX_WORKERS)
		err = kvw_worker_list_of_urls((const char *const *)urls, count, &list);
	free_urls(source->urls, source->url_count);
	source->urls = urls;
	source->url_count = count;
	source->reported = true;
	if (count > KVW_MAX_WORKERS) {
		snprintf(why, sizeof(why), "found %zu workers in all, expected at most %d", count,
			KVW_MAX_WORKERS);
		failed_to(source, name, why);
	} else if (err != KVW_OK) {
		source->reported = false;
		failed_to(source, name, err == KVW_ENOMEM ? "out of memory" : "not a worker's URL");
	} else {
		kvw_info(ROOM, "dns: %zu workers", count);
		source->found(source->arg, source->base.ops, list->workers, list->worker_count,
			any_failed(source), NULL);
	}
	kvw_config_destroy(list);
}

/* --- one name --- */

static void ask_after(struct name *name, int64_t ms)
{
	const struct timeval delay = {
		.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

	event_add(name->again, &delay);
}

static void ask_later(struct name *name)
{
	const struct dns_source *source = name->source;

	name->delay_ms = name->delay_ms == 0 ? source->least_ms : name->delay_ms * 2;
	if (name->delay_ms > source->most_ms)
		name->delay_ms = source->most_ms;
	ask_after(name, name->delay_ms);
}

/* Handles a failed question. */
static void name_failed(struct name *name, const char *why)
{
	struct dns_source *source = name->source;
	bool first = !name->failed, started = !name->answered;

	ask_later(name);
	name->failed = true;
	name->answered = true;
	if (first)
		failed_to(source, name, why);
	if (started)
		report_name(source, name, false);
}

/* Handles an answer that has no records. */
static void name_none(struct name *name, const char *why)
{
	bool ended = name->failed;

	ask_later(name);
	name->failed = false;
	name->answered = true;
	if (++name->none == NONE_TWICE && name->count > 0)
		kvw_warn(ROOM, "%s: %s, twice in a row: its workers are gone", name->text, why);
	else if (name->none == 1)
		kvw_info(ROOM, "%s: %s", name->text, why);
	if (name->none >= NONE_TWICE)
		name->count = 0;
	report_name(name->source, name, ended);
}

/* Takes an ordered list, which the name then owns. */
static void name_found(struct name *name, struct sockaddr_storage *addresses, size_t count)
{
	const struct dns_source *source = name->source;
	int64_t ms = name->ttl_s >= KVW_DNS_FILE ? source->most_ms : name->ttl_s * INT64_C(1000);
	bool ended = name->failed;

	free(name->addresses);
	name->addresses = addresses;
	name->count = count;
	name->none = 0;
	name->delay_ms = 0;
	name->failed = false;
	name->answered = true;
	ms = ms < source->least_ms ? source->least_ms : ms > source->most_ms ? source->most_ms : ms;
	if (name->ttl_s != KVW_DNS_STAY)
		ask_after(name, ms);
	report_name(name->source, name, ended);
}

static bool has_family(const struct kvw_dns_answer *answer, sa_family_t family)
{
	for (size_t i = 0; i < answer->address_count; i++)
		if (answer->addresses[i].ss_family == family)
			return true;
	return false;
}

static void on_host(void *arg, const struct kvw_dns_answer *answer)
{
	struct name *name = arg;
	size_t kept = answer->half ? name->count : 0, used = answer->address_count;
	struct sockaddr_storage *list;

	name->question = NULL;
	if (answer->verdict == KVW_DNS_FAILED) {
		name_failed(name, answer->why);
		return;
	}
	if (answer->verdict == KVW_DNS_NONE) {
		name_none(name, answer->why);
		return;
	}
	list = calloc(used + kept, sizeof(*list));
	if (list == NULL) {
		name_failed(name, "out of memory");
		return;
	}
	memcpy(list, answer->addresses, used * sizeof(*list));
	for (size_t i = 0; i < kept; i++)
		if (!has_family(answer, name->addresses[i].ss_family))
			list[used++] = name->addresses[i];
	name->ttl_s = answer->ttl_s;
	name_found(name, list, kvw_dns_order(list, used));
}

/* --- targets of SRV records --- */

static void ask_targets(struct name *name);

/* Handles the end of all questions about targets. */
static void targets_known(struct name *name)
{
	struct sockaddr_storage *list = calloc(name->target_count, sizeof(*list));
	size_t used = 0;

	if (list == NULL) {
		name_failed(name, "out of memory");
		return;
	}
	for (size_t i = 0; i < name->target_count; i++)
		if (name->targets[i].address.ss_family != AF_UNSPEC)
			list[used++] = name->targets[i].address;
	if (used == 0) {
		free(list);
		free(name->targets);
		name->targets = NULL;
		name->target_count = 0;
		name_failed(name, "none of its targets has an address");
		return;
	}
	free(name->before);
	name->before = name->targets;
	name->before_count = name->target_count;
	name->targets = NULL;
	name->target_count = 0;
	name_found(name, list, kvw_dns_order(list, used));
}

/* Keeps a target's former address if the target's name cannot be resolved, or if only the query for
 * that kind of addresses failed (answer; NULL: all failed): with another address it would become
 * another worker. */
static void keep_address(struct target *target, const struct kvw_dns_answer *answer)
{
	const struct name *name = target->name;

	for (size_t i = 0; i < name->before_count; i++)
		if (strcasecmp(name->before[i].to.host, target->to.host) == 0 &&
			name->before[i].to.port == target->to.port &&
			(answer == NULL || !has_family(answer, name->before[i].address.ss_family)))
			target->address = name->before[i].address;
	if (target->address.ss_family == AF_UNSPEC)
		kvw_warn(ROOM, "%s: target %s cannot be resolved", name->text, target->to.host);
	if (name->source->least_ms < INT64_C(1000) * target->name->ttl_s)
		target->name->ttl_s = (uint32_t)((name->source->least_ms + 999) / 1000);
}

static void on_target(void *arg, const struct kvw_dns_answer *answer)
{
	struct target *target = arg;
	struct name *name = target->name;

	target->question = NULL;
	name->open--;
	if (answer->verdict == KVW_DNS_FOUND) {
		target->address = answer->addresses[0];
		if (answer->ttl_s < name->ttl_s)
			name->ttl_s = answer->ttl_s;
	}
	if (answer->verdict == KVW_DNS_FAILED || answer->half)
		keep_address(target, answer->half ? answer : NULL);
	ask_targets(name);
}

static void ask_targets(struct name *name)
{
	while (name->next < name->target_count && name->open < ASKED_MOST) {
		struct target *target = &name->targets[name->next++];

		if (kvw_dns_ask_host(name->source->dns, target->to.host, target->to.port, on_target,
			    target, &target->question) == KVW_OK)
			name->open++;
		else
			keep_address(target, NULL);
	}
	if (name->open == 0)
		targets_known(name);
}

static void on_service(void *arg, const struct kvw_dns_answer *answer)
{
	struct name *name = arg;

	name->question = NULL;
	if (answer->verdict == KVW_DNS_FAILED) {
		name_failed(name, answer->why);
		return;
	}
	if (answer->verdict == KVW_DNS_NONE) {
		name_none(name, answer->why);
		return;
	}
	name->targets = calloc(answer->target_count, sizeof(*name->targets));
	if (name->targets == NULL) {
		name_failed(name, "out of memory");
		return;
	}
	name->target_count = answer->target_count;
	for (size_t i = 0; i < name->target_count; i++)
		name->targets[i] = (struct target){.name = name, .to = answer->targets[i]};
	name->ttl_s = answer->ttl_s;
	name->next = 0;
	ask_targets(name);
}

static void ask_name(struct name *name)
{
	struct kvw_dns *dns = name->source->dns;
	enum kvw_err err;

	if (name->url.srv)
		err = kvw_dns_ask_service(dns, name->host, on_service, name, &name->question);
	else
		err = kvw_dns_ask_host(
			dns, name->host, name->url.port, on_host, name, &name->question);
	if (err != KVW_OK)
		name_failed(name, "out of memory");
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	ask_name(arg);
}

/* --- life --- */

static bool dns_configured(const struct kvw_config *config)
{
	return config->discovery_dns.count > 0;
}

static void name_finish(struct name *name)
{
	kvw_dns_drop(name->question);
	for (size_t i = 0; i < name->target_count; i++)
		kvw_dns_drop(name->targets[i].question);
	if (name->again != NULL)
		event_free(name->again);
	free(name->text);
	free(name->addresses);
	free(name->targets);
	free(name->before);
}

static void dns_stop(struct kvw_source *base)
{
	struct dns_source *source = (struct dns_source *)base;

	if (source == NULL)
		return;
	for (size_t i = 0; i < source->count; i++)
		name_finish(&source->names[i]);
	kvw_dns_destroy(source->dns);
	free_urls(source->urls, source->url_count);
	free(source);
}

static enum kvw_err name_init(
	struct name *name, struct event_base *base, struct dns_source *source, const char *text)
{
	name->source = source;
	name->text = strdup(text);
	name->again = event_new(base, -1, 0, on_again, name);
	if (name->text == NULL || name->again == NULL)
		return KVW_ENOMEM;
	if (!kvw_discovery_url_split(kvw_slice_of(name->text), &name->url) ||
		name->url.name.len >= sizeof(name->host))
		return KVW_EINVAL; /* a name that the configuration's check refuses */
	memcpy(name->host, name->url.name.data, name->url.name.len);
	return KVW_OK;
}

enum kvw_err kvw_dns_source_start(struct event_base *base, const struct kvw_config *config,
	const struct kvw_dns_options *options, kvw_source_found_fn *found, void *arg,
	struct kvw_source **out)
{
	size_t count = config->discovery_dns.count;
	struct dns_source *source = calloc(1, sizeof(*source) + count * sizeof(source->names[0]));
	enum kvw_err err;

	if (source == NULL)
		return KVW_ENOMEM;
	source->base.ops = &kvw_source_dns;
	source->found = found;
	source->arg = arg;
	source->count = count;
	source->least_ms = config->discovery_dns_least_ms;
	source->most_ms = config->discovery_dns_most_ms;
	err = kvw_dns_create(base, options, &source->dns);
	for (size_t i = 0; i < count && err == KVW_OK; i++)
		err = name_init(&source->names[i], base, source, config->discovery_dns.items[i]);
	if (err != KVW_OK) {
		dns_stop(&source->base);
		return err;
	}
	*out = &source->base;
	for (size_t i = 0; i < count; i++)
		ask_name(&source->names[i]);
	return KVW_OK;
}

static enum kvw_err dns_start(struct event_base *base, const struct kvw_config *config,
	kvw_source_found_fn *found, void *arg, struct kvw_source **out)
{
	return kvw_dns_source_start(base, config, NULL, found, arg, out);
}

const struct kvw_source_ops kvw_source_dns = {
	.name = "dns",
	.configured = dns_configured,
	.start = dns_start,
	.stop = dns_stop,
};
