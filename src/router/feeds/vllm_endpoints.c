/*
 * vllm_endpoints.c - reads and makes the addresses of an engine's KV events.
 *
 * An engine listens if its configured endpoint has a wildcard (0.0.0.0 or *), and connects
 * otherwise. A wildcard stands for any address of the engine; kvway uses the address to which it
 * sends requests. An endpoint without a wildcard is the address of another process, to which the
 * engine connects: kvway, if kvaware.events.bind is that address. The engine always binds its
 * replay socket, so that an address there is the engine's own.
 */
#include "feeds/vllm_endpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define TEXT_MAX 512u /* longest endpoint or topic, in bytes */
#define RANK_MAX 65535

static bool text_begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Returns whether the engine listens at the endpoint, by the rule of vLLM's ZmqEventPublisher;
 * 0.0.0.0 is no address to connect to. */
static bool is_bound(const char *endpoint)
{
	return strchr(endpoint, '*') != NULL || strstr(endpoint, "::") != NULL ||
	       text_begins(endpoint, "tcp://0.0.0.0:") || text_begins(endpoint, "ipc://");
}

/* Returns the host of tcp://HOST:PORT, with its brackets. False: another form, or an invalid
 * port. */
static bool split_tcp(const char *endpoint, struct kvw_slice *host, uint32_t *port)
{
	const char *at = endpoint + 6, *colon = strrchr(endpoint, ':');
	char *end;
	unsigned long number;

	if (!text_begins(endpoint, "tcp://") || colon == NULL || colon <= at ||
		strchr(at, '/') != NULL)
		return false;
	if (colon[1] < '0' || colon[1] > '9')
		return false;
	number = strtoul(colon + 1, &end, 10);
	if (*end != '\0' || number == 0 || number > 65535)
		return false;
	*host = (struct kvw_slice){at, (size_t)(colon - at)};
	*port = (uint32_t)number;
	return true;
}

static bool is_any_host(struct kvw_slice host)
{
	static const struct kvw_slice any[] = {{"*", 1}, {"0.0.0.0", 7}, {"::", 2}, {"[::]", 4}};

	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++)
		if (kvw_slice_equal(host, any[i]))
			return true;
	return false;
}

static enum kvw_err format_tcp(struct kvw_slice host, uint32_t port, char **out)
{
	bool bare_v6 = memchr(host.data, ':', host.len) != NULL && host.data[0] != '[';
	int len = asprintf(
		out, bare_v6 ? "tcp://[%.*s]:%u" : "tcp://%.*s:%u", (int)host.len, host.data, port);

	return len < 0 ? KVW_ENOMEM : KVW_OK;
}

static enum kvw_err copy(const char *text, char **out)
{
	char *made = strdup(text);

	if (made == NULL)
		return KVW_ENOMEM;
	*out = made;
	return KVW_OK;
}

/* Makes the address to which kvway connects for an engine's endpoint. KVW_EPROTO: kvway cannot
 * reach it. */
static enum kvw_err resolve(const char *endpoint, const char *host, char **out)
{
	struct kvw_slice told;
	uint32_t port;

	if (strlen(endpoint) > TEXT_MAX)
		return KVW_EPROTO;
	if (text_begins(endpoint, "ipc://") && endpoint[6] != '\0')
		return copy(endpoint, out);
	if (!split_tcp(endpoint, &told, &port))
		return KVW_EPROTO;
	return format_tcp(is_any_host(told) ? kvw_slice_of(host) : told, port, out);
}

void kvw_vllm_endpoints_finish(struct kvw_vllm_endpoints *endpoints)
{
	for (size_t i = 0; i < endpoints->count; i++) {
		free(endpoints->items[i].events);
		free(endpoints->items[i].replay);
		free(endpoints->items[i].topic);
	}
	*endpoints = (struct kvw_vllm_endpoints){.count = 0};
}

bool kvw_vllm_endpoint_equal(const struct kvw_vllm_endpoint *a, const struct kvw_vllm_endpoint *b)
{
	if (a->rank != b->rank || a->connects != b->connects || strcmp(a->replay, b->replay) != 0)
		return false;
	/* Engines that connect are the same stream whatever address they use for kvway. */
	return a->connects ||
	       (strcmp(a->events, b->events) == 0 && strcmp(a->topic, b->topic) == 0);
}

/* --- an engine's answer --- */

/* Reads a text; "" if it is missing or null. False: another type, or too long. */
static bool text_of(const json_t *source, const char *name, const char **text)
{
	const json_t *value = json_object_get(source, name);

	*text = "";
	if (value == NULL || json_is_null(value))
		return true;
	*text = json_string_value(value);
	return *text != NULL && strlen(*text) <= TEXT_MAX;
}

static bool parse_rank(const char *text, uint32_t *rank)
{
	char *end;
	unsigned long number;

	if (text[0] < '0' || text[0] > '9')
		return false;
	number = strtoul(text, &end, 10);
	*rank = (uint32_t)number;
	return *end == '\0' && number <= RANK_MAX;
}

/* Parses the entry of one rank; the caller releases *item in any case. */
static enum kvw_err parse_one(
	const json_t *source, const char *host, struct kvw_vllm_endpoint *item)
{
	const char *events, *replay, *topic;
	enum kvw_err err;

	if (!json_is_object(source) || !text_of(source, "endpoint", &events) ||
		!text_of(source, "replay_endpoint", &replay) || !text_of(source, "topic", &topic))
		return KVW_EPROTO;
	item->connects = !is_bound(events);
	item->buffer_steps = (uint64_t)json_integer_value(json_object_get(source, "buffer_steps"));
	err = resolve(events, host, &item->events);
	if (err == KVW_OK)
		err = replay[0] == '\0' ? copy("", &item->replay)
					: resolve(replay, host, &item->replay);
	if (err == KVW_OK)
		err = copy(topic, &item->topic);
	return err;
}

/* Inserts an endpoint in the order of ranks; a full list keeps the lowest ranks. */
static void insert(struct kvw_vllm_endpoints *list, const struct kvw_vllm_endpoint *item)
{
	size_t at = list->count;

	while (at > 0 && list->items[at - 1].rank > item->rank)
		at--;
	memmove(&list->items[at + 1], &list->items[at],
		(list->count - at) * sizeof(list->items[0]));
	list->items[at] = *item;
	list->count++;
}

static enum kvw_err parse_all(json_t *root, const char *host, struct kvw_vllm_endpoints *list)
{
	enum kvw_err err = KVW_OK;
	const char *name;
	json_t *source;

	json_object_foreach(root, name, source)
	{
		struct kvw_vllm_endpoint item = {0};

		if (list->count == KVW_VLLM_RANKS) {
			list->more = true;
			break;
		}
		err = parse_rank(name, &item.rank) ? parse_one(source, host, &item) : KVW_EPROTO;
		if (err != KVW_OK) {
			free(item.events);
			free(item.replay);
			free(item.topic);
			break;
		}
		insert(list, &item);
	}
	return err;
}

enum kvw_err kvw_vllm_endpoints_parse(
	const char *body, size_t len, const char *host, struct kvw_vllm_endpoints *out)
{
	struct kvw_vllm_endpoints list = {.count = 0};
	json_t *root = json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);
	enum kvw_err err = KVW_EPROTO;

	if (json_is_object(root))
		err = parse_all(root, host, &list);
	json_decref(root);
	if (err == KVW_OK)
		*out = list;
	else
		kvw_vllm_endpoints_finish(&list);
	return err;
}

/* --- the configuration --- */

/* Fills in a template: its host, and its port plus the rank. */
static enum kvw_err fill_template(const char *template, const char *host, uint32_t rank, char **out)
{
	static const char mark[] = "{host}";
	const char *at = strstr(template, mark);
	char *text = NULL;
	struct kvw_slice told;
	uint32_t port;
	enum kvw_err err = KVW_EINVAL;

	if (strlen(template) > TEXT_MAX)
		return KVW_EINVAL;
	if (at == NULL)
		text = strdup(template);
	else if (asprintf(&text, strchr(host, ':') != NULL ? "%.*s[%s]%s" : "%.*s%s%s",
			 (int)(at - template), template, host, at + sizeof(mark) - 1) < 0)
		text = NULL;
	if (text == NULL)
		return KVW_ENOMEM;
	if (text_begins(text, "ipc://") && text[6] != '\0' && rank == 0)
		err = copy(text, out);
	else if (split_tcp(text, &told, &port) && port + rank <= 65535)
		err = format_tcp(is_any_host(told) ? kvw_slice_of(host) : told, port + rank, out);
	free(text);
	return err;
}

enum kvw_err kvw_vllm_endpoints_make(const char *events, const char *replay, uint32_t first,
	uint32_t ranks, const char *host, struct kvw_vllm_endpoints *out)
{
	struct kvw_vllm_endpoints list = {.count = 0};
	enum kvw_err err = KVW_OK;

	for (uint32_t i = 0; i < ranks && i < KVW_VLLM_RANKS && err == KVW_OK; i++) {
		struct kvw_vllm_endpoint *item = &list.items[list.count++];
		uint32_t rank = first + i;

		item->rank = rank;
		err = fill_template(events, host, rank, &item->events);
		if (err == KVW_OK)
			err = replay[0] == '\0' ? copy("", &item->replay)
						: fill_template(replay, host, rank, &item->replay);
		if (err == KVW_OK)
			err = copy("", &item->topic);
	}
	if (err == KVW_OK)
		*out = list;
	else
		kvw_vllm_endpoints_finish(&list);
	return err;
}

bool kvw_vllm_topic_worker(struct kvw_slice topic, struct kvw_slice *authority)
{
	const char *end;

	if (topic.len < 4 || memcmp(topic.data, "kv@", 3) != 0)
		return false;
	end = memchr(topic.data + 3, '@', topic.len - 3);
	if (end == NULL)
		end = topic.data + topic.len;
	*authority = (struct kvw_slice){topic.data + 3, (size_t)(end - topic.data) - 3};
	return authority->len > 0;
}
