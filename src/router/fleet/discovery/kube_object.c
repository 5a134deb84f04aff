/*
 * kube_object.c - parses objects of the API of Kubernetes.
 *
 * jansson bounds the depth of what it parses; the caller bounds the length. A member of a wrong
 * type counts as missing. Only the identity of an object (its name and UID) must be valid; an
 * invalid address or port only removes the endpoint.
 */
#include "fleet/discovery/kube_object.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <xxhash.h>

#include "config/label_selector.h"

#define MODEL_MOST 512 /* longest name of a model, in bytes */

/* --- texts --- */

/* Returns a string member; len 0: there is none. */
static struct kvw_slice text_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_string(value))
		return (struct kvw_slice){"", 0};
	return (struct kvw_slice){json_string_value(value), json_string_length(value)};
}

static bool is_visible(struct kvw_slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] <= ' ' || text.data[i] > '~')
			return false;
	return true;
}

/* Copies a text. False: it is not visible ASCII, or is too long. */
static bool copy_text(struct kvw_slice text, char *out, size_t room)
{
	if (text.len >= room || !is_visible(text))
		return false;
	memcpy(out, text.data, text.len);
	out[text.len] = '\0';
	return true;
}

/* Copies a UID. Its format is not specified, so that an unusual one is replaced by its hash. */
static void copy_uid(struct kvw_slice text, char out[KVW_KUBE_UID])
{
	if (!copy_text(text, out, KVW_KUBE_UID))
		snprintf(out, KVW_KUBE_UID, "hash-%016" PRIx64, XXH3_64bits(text.data, text.len));
}

static void copy_printable(struct kvw_slice text, char *out, size_t room)
{
	size_t len = text.len < room ? text.len : room - 1;

	for (size_t i = 0; i < len; i++)
		out[i] = isprint((unsigned char)text.data[i]) && text.data[i] != '"' ? text.data[i]
										     : ' ';
	out[len] = '\0';
}

uint64_t kvw_kube_version_number(const char *text)
{
	char *end;
	uint64_t number;

	if (text[0] < '1' || text[0] > '9' || strlen(text) > 19)
		return 0;
	number = strtoull(text, &end, 10);
	return *end == '\0' ? number : 0;
}

/* --- labels and annotations --- */

static struct kvw_slice label(const void *arg, struct kvw_slice key)
{
	const json_t *labels = arg, *value;
	char name[400];

	if (key.len >= sizeof(name))
		return (struct kvw_slice){NULL, 0};
	memcpy(name, key.data, key.len);
	name[key.len] = '\0';
	value = json_object_get(labels, name);
	if (!json_is_string(value))
		return (struct kvw_slice){NULL, 0};
	return (struct kvw_slice){json_string_value(value), json_string_length(value)};
}

/* Returns the value of the annotation of this name, or else of the label. */
static struct kvw_slice said(const json_t *metadata, const char *key)
{
	struct kvw_slice value = text_of(json_object_get(metadata, "annotations"), key);

	return value.len > 0 ? value : text_of(json_object_get(metadata, "labels"), key);
}

static bool is_model(struct kvw_slice name)
{
	if (name.len == 0 || name.len > MODEL_MOST)
		return false;
	for (size_t i = 0; i < name.len; i++)
		if ((unsigned char)name.data[i] < ' ' || name.data[i] == 127)
			return false;
	return true;
}

static struct kvw_slice trim(struct kvw_slice text)
{
	while (text.len > 0 && isspace((unsigned char)text.data[0])) {
		text.data++;
		text.len--;
	}
	while (text.len > 0 && isspace((unsigned char)text.data[text.len - 1]))
		text.len--;
	return text;
}

static enum kvw_err read_models(struct kvw_slice text, struct kvw_strings *out)
{
	out->items = calloc(KVW_KUBE_MODELS_MOST, sizeof(*out->items));
	if (out->items == NULL)
		return KVW_ENOMEM;
	while (text.len > 0 && out->count < KVW_KUBE_MODELS_MOST) {
		const char *comma = memchr(text.data, ',', text.len);
		size_t len = comma == NULL ? text.len : (size_t)(comma - text.data);
		struct kvw_slice name = trim((struct kvw_slice){text.data, len});

		if (is_model(name)) {
			char *copy = strndup(name.data, name.len);

			if (copy == NULL)
				return KVW_ENOMEM;
			out->items[out->count++] = copy;
		}
		len += comma != NULL;
		text.data += len;
		text.len -= len;
	}
	return KVW_OK;
}

/* Parses a weight, in the range of a worker's `weight`; 0: not a number in that range. */
static double read_weight(struct kvw_slice text)
{
	char digits[32], *end;
	double weight;

	if (text.len == 0 || text.len >= sizeof(digits) || !isdigit((unsigned char)text.data[0]))
		return 0;
	memcpy(digits, text.data, text.len);
	digits[text.len] = '\0';
	weight = strtod(digits, &end);
	return *end == '\0' && weight >= 0.01 && weight <= 1 ? weight : 0;
}

/* Reads the role from kvway's label, or else from llm-d's. */
static enum kvw_role read_role(const json_t *metadata)
{
	const json_t *labels = json_object_get(metadata, "labels");
	struct kvw_slice role = text_of(labels, "kvway.io/role");

	if (role.len == 0)
		role = text_of(labels, "llm-d.ai/role");
	if (kvw_slice_equal(role, KVW_SLICE("prefill")))
		return KVW_ROLE_PREFILL;
	return kvw_slice_equal(role, KVW_SLICE("decode")) ? KVW_ROLE_DECODE : KVW_ROLE_BOTH;
}

/* --- pods --- */

/* Returns a port's number; 0: the text is a name. */
static uint16_t port_number(const char *port)
{
	return port[strspn(port, "0123456789")] == '\0' ? (uint16_t)strtoul(port, NULL, 10) : 0;
}

/* 0: no such. */
static uint16_t port_of(const json_t *entry, const char *key)
{
	const json_t *value = json_object_get(entry, key);
	json_int_t number = json_is_integer(value) ? json_integer_value(value) : 0;

	return number >= 1 && number <= 65535 ? (uint16_t)number : 0;
}

static uint16_t container_port(const json_t *spec, const char *name)
{
	size_t i, k;
	const json_t *container, *port;

	json_array_foreach(json_object_get(spec, "containers"), i, container)
		json_array_foreach(json_object_get(container, "ports"), k, port)
			if (kvw_slice_equal(text_of(port, "name"), kvw_slice_of(name)))
				return port_of(port, "containerPort");
	return 0;
}

static bool pod_is_ready(const json_t *status)
{
	struct kvw_slice phase = text_of(status, "phase");
	const json_t *condition;
	size_t i;

	if (kvw_slice_equal(phase, KVW_SLICE("Failed")) ||
		kvw_slice_equal(phase, KVW_SLICE("Succeeded")))
		return false;
	json_array_foreach(json_object_get(status, "conditions"), i, condition)
		if (kvw_slice_equal(text_of(condition, "type"), KVW_SLICE("Ready")))
			return kvw_slice_equal(text_of(condition, "status"), KVW_SLICE("True"));
	return false;
}

/* Reads an address and normalizes it with inet_ntop, so that each address has one text. */
static bool read_address(struct kvw_slice text, struct kvw_kube_endpoint *out)
{
	char copy[INET6_ADDRSTRLEN];
	unsigned char bytes[16];

	if (text.len == 0 || !copy_text(text, copy, sizeof(copy)))
		return false;
	if (inet_pton(AF_INET, copy, bytes) == 1)
		out->v6 = false;
	else if (inet_pton(AF_INET6, copy, bytes) == 1)
		out->v6 = true;
	else
		return false;
	return inet_ntop(out->v6 ? AF_INET6 : AF_INET, bytes, out->address, sizeof(out->address)) !=
	       NULL;
}

static enum kvw_err read_pod(const struct kvw_pool_config *pool, const json_t *json,
	const json_t *metadata, struct kvw_kube_object *object)
{
	const json_t *status = json_object_get(json, "status");
	const json_t *labels = json_object_get(metadata, "labels");
	struct kvw_kube_endpoint endpoint = {.port = port_number(pool->port)};
	const json_t *deleted = json_object_get(metadata, "deletionTimestamp");

	if (endpoint.port == 0)
		endpoint.port = container_port(json_object_get(json, "spec"), pool->port);
	if (endpoint.port == 0 || (deleted != NULL && !json_is_null(deleted)) ||
		!pod_is_ready(status) || !read_address(text_of(status, "podIP"), &endpoint) ||
		!kvw_label_selector_matches(kvw_slice_of(pool->selector), label, labels))
		return KVW_OK;
	memcpy(endpoint.identity, object->uid, sizeof(endpoint.identity));
	object->endpoints = malloc(sizeof(endpoint));
	if (object->endpoints == NULL)
		return KVW_ENOMEM;
	object->endpoints[0] = endpoint;
	object->endpoint_count = 1;
	return KVW_OK;
}

/* --- EndpointSlices --- */

static uint16_t slice_port(const json_t *ports, const char *wanted)
{
	uint16_t number = port_number(wanted);
	const json_t *port;
	size_t i;

	if (number == 0 && wanted[0] == '\0')
		return json_array_size(ports) == 1 ? port_of(json_array_get(ports, 0), "port") : 0;
	json_array_foreach(ports, i, port)
		if (number == 0 ? kvw_slice_equal(text_of(port, "name"), kvw_slice_of(wanted))
				: port_of(port, "port") == number)
			return port_of(port, "port");
	return number; /* the Service maps another port to these pods */
}

/* The API says that a missing "ready" counts as true. */
static bool endpoint_is_ready(const json_t *endpoint)
{
	const json_t *conditions = json_object_get(endpoint, "conditions");

	return !json_is_false(json_object_get(conditions, "ready")) &&
	       !json_is_true(json_object_get(conditions, "terminating"));
}

static bool is_of_service(const struct kvw_pool_config *pool, const json_t *metadata)
{
	struct kvw_slice of = text_of(
		json_object_get(metadata, "labels"), "kubernetes.io/service-name");

	return kvw_slice_equal(of, kvw_slice_of(pool->service));
}

static enum kvw_err read_slice(const struct kvw_pool_config *pool, const json_t *json,
	const json_t *metadata, struct kvw_kube_object *object)
{
	const json_t *endpoints = json_object_get(json, "endpoints"), *endpoint;
	uint16_t port = slice_port(json_object_get(json, "ports"), pool->port);
	size_t count = json_array_size(endpoints), i;

	if (count > KVW_KUBE_ENDPOINTS_MOST)
		return KVW_EINVAL;
	if (port == 0 || count == 0 || !is_of_service(pool, metadata))
		return KVW_OK;
	object->endpoints = calloc(count, sizeof(*object->endpoints));
	if (object->endpoints == NULL)
		return KVW_ENOMEM;
	json_array_foreach(endpoints, i, endpoint) {
		struct kvw_kube_endpoint *out = &object->endpoints[object->endpoint_count];
		const json_t *target = json_object_get(endpoint, "targetRef");
		const json_t *first = json_array_get(json_object_get(endpoint, "addresses"), 0);
		struct kvw_slice address = {"", 0};

		if (json_is_string(first))
			address = (struct kvw_slice){
				json_string_value(first), json_string_length(first)};
		if (!endpoint_is_ready(endpoint) || !read_address(address, out))
			continue;
		out->port = port;
		if (kvw_slice_equal(text_of(target, "kind"), KVW_SLICE("Pod")))
			copy_uid(text_of(target, "uid"), out->identity);
		object->endpoint_count++;
	}
	return KVW_OK;
}

/* --- objects --- */

void kvw_kube_object_finish(struct kvw_kube_object *object)
{
	for (size_t i = 0; i < object->models.count; i++)
		free(object->models.items[i]);
	free(object->models.items);
	free(object->endpoints);
	*object = (struct kvw_kube_object){.version = 0};
}

/* Reads an object; on failure *object may be partly filled. version: receives the resourceVersion;
 * NULL: not wanted. */
static enum kvw_err read_object(const struct kvw_pool_config *pool, const json_t *json,
	struct kvw_kube_object *object, char version[KVW_KUBE_VERSION])
{
	const json_t *metadata = json_object_get(json, "metadata");
	char number[KVW_KUBE_VERSION];
	enum kvw_err err;

	if (!copy_text(text_of(metadata, "name"), object->name, sizeof(object->name)) ||
		object->name[0] == '\0' || text_of(metadata, "uid").len == 0 ||
		!copy_text(text_of(metadata, "resourceVersion"), number, sizeof(number)))
		return KVW_EINVAL;
	copy_uid(text_of(metadata, "uid"), object->uid);
	object->version = kvw_kube_version_number(number);
	if (version != NULL)
		memcpy(version, number, sizeof(number));
	err = pool->service[0] != '\0' ? read_slice(pool, json, metadata, object)
				       : read_pod(pool, json, metadata, object);
	if (err == KVW_OK && object->endpoint_count > 0 && pool->models_from[0] != '\0')
		err = read_models(said(metadata, pool->models_from), &object->models);
	if (err == KVW_OK && pool->weight_from[0] != '\0')
		object->weight = read_weight(said(metadata, pool->weight_from));
	object->role = read_role(metadata);
	return err;
}

void kvw_kube_page_finish(struct kvw_kube_page *page)
{
	for (size_t i = 0; i < page->count; i++)
		kvw_kube_object_finish(&page->objects[i]);
	free(page->objects);
	*page = (struct kvw_kube_page){.count = 0};
}

/* Returns whether the list's `kind`, if present, is the expected one. */
static bool is_list(const struct kvw_pool_config *pool, const json_t *root)
{
	const char *kind = pool->service[0] != '\0' ? "EndpointSliceList" : "PodList";

	return json_object_get(root, "kind") == NULL ||
	       kvw_slice_equal(text_of(root, "kind"), kvw_slice_of(kind));
}

/* Reads the token of the next page. An unreadable one is an error, since otherwise this page would
 * count as the last. */
static bool read_next(const json_t *metadata, char next[KVW_KUBE_CONTINUE])
{
	const json_t *token = json_object_get(metadata, "continue");
	const json_t *left = json_object_get(metadata, "remainingItemCount");

	if (token != NULL && !json_is_null(token) && !json_is_string(token))
		return false;
	return copy_text(text_of(metadata, "continue"), next, KVW_KUBE_CONTINUE) &&
	       (next[0] != '\0' || json_integer_value(left) <= 0);
}

static enum kvw_err read_page(const struct kvw_pool_config *pool, const json_t *root,
	struct kvw_kube_page *page)
{
	const json_t *metadata = json_object_get(root, "metadata");
	const json_t *items = json_object_get(root, "items"), *item;
	size_t count = json_array_size(items), i;
	enum kvw_err err = KVW_OK;

	/* A watch cannot begin without the list's version; `items: null` is an empty list. */
	if (!is_list(pool, root) ||
		!copy_text(text_of(metadata, "resourceVersion"), page->version,
			sizeof(page->version)) ||
		page->version[0] == '\0' || !read_next(metadata, page->next) ||
		(!json_is_array(items) && !json_is_null(items)))
		return KVW_EINVAL;
	if (count > KVW_KUBE_PAGE_MOST)
		return KVW_EINVAL;
	if (count == 0)
		return KVW_OK;
	page->objects = calloc(count, sizeof(*page->objects));
	if (page->objects == NULL)
		return KVW_ENOMEM;
	json_array_foreach(items, i, item) {
		err = read_object(pool, item, &page->objects[page->count++], NULL);
		if (err != KVW_OK)
			break;
	}
	return err;
}

enum kvw_err kvw_kube_page_read(const struct kvw_pool_config *pool, const char *text, size_t len,
	struct kvw_kube_page *out)
{
	json_t *root = json_loadb(text, len, 0, NULL);
	enum kvw_err err;

	*out = (struct kvw_kube_page){.count = 0};
	if (root == NULL)
		return KVW_EINVAL;
	err = read_page(pool, root, out);
	json_decref(root);
	if (err != KVW_OK)
		kvw_kube_page_finish(out);
	return err;
}

/* --- events --- */

static bool read_kind(struct kvw_slice type, enum kvw_kube_event_kind *out)
{
	static const char *const names[] = {
		[KVW_KUBE_ADDED] = "ADDED",
		[KVW_KUBE_MODIFIED] = "MODIFIED",
		[KVW_KUBE_DELETED] = "DELETED",
		[KVW_KUBE_BOOKMARK] = "BOOKMARK",
		[KVW_KUBE_ERROR] = "ERROR",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (kvw_slice_equal(type, kvw_slice_of(names[i]))) {
			*out = (enum kvw_kube_event_kind)i;
			return true;
		}
	return false;
}

static enum kvw_err read_event(const struct kvw_pool_config *pool, const json_t *root,
	struct kvw_kube_event *event)
{
	const json_t *object = json_object_get(root, "object"), *code;

	if (!read_kind(text_of(root, "type"), &event->kind) || !json_is_object(object))
		return KVW_EINVAL;
	switch (event->kind) {
	case KVW_KUBE_BOOKMARK:
		return copy_text(text_of(json_object_get(object, "metadata"), "resourceVersion"),
			       event->version, sizeof(event->version)) &&
				       event->version[0] != '\0'
			       ? KVW_OK
			       : KVW_EINVAL;
	case KVW_KUBE_ERROR:
		code = json_object_get(object, "code");
		if (json_is_integer(code) && json_integer_value(code) > 0 &&
			json_integer_value(code) < 1000)
			event->code = (int)json_integer_value(code);
		copy_printable(text_of(object, "message"), event->message, sizeof(event->message));
		return KVW_OK;
	default:
		return read_object(pool, object, &event->object, event->version);
	}
}

enum kvw_err kvw_kube_event_read(const struct kvw_pool_config *pool, const char *text, size_t len,
	struct kvw_kube_event *out)
{
	json_t *root = json_loadb(text, len, 0, NULL);
	enum kvw_err err;

	memset(out, 0, sizeof(*out));
	if (root == NULL)
		return KVW_EINVAL;
	err = read_event(pool, root, out);
	json_decref(root);
	if (err != KVW_OK)
		kvw_kube_event_finish(out);
	return err;
}

void kvw_kube_event_finish(struct kvw_kube_event *event)
{
	kvw_kube_object_finish(&event->object);
}

void kvw_kube_status_read(const char *text, size_t len, char *message, size_t room)
{
	json_t *root = json_loadb(text, len, 0, NULL);

	copy_printable(text_of(root, "message"), message, room);
	json_decref(root);
}
