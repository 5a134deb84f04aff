/*
 * sim_options_kv.c - what the command line says about KV events and LMCache.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_options_kv.h"

#define STEPS_MOST 1000000

static bool complain(const char *option, const char *text)
{
	fprintf(stderr, "kvsim: %s: %s\n", option, text);
	return false;
}

static bool copy_text(const char *text, size_t len, char *out, size_t size)
{
	if (len >= size)
		return false;
	memcpy(out, text, len);
	out[len] = '\0';
	return true;
}

/* Takes a text member; null leaves the old value. */
static bool take_text(const json_t *value, char out[KVB_ADDRESS_MAX])
{
	if (json_is_null(value))
		return true;
	return json_is_string(value) &&
	       copy_text(json_string_value(value), json_string_length(value), out, KVB_ADDRESS_MAX);
}

static bool take_count(const json_t *value, json_int_t most, uint32_t *out)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		json_integer_value(value) > most)
		return false;
	*out = (uint32_t)json_integer_value(value);
	return true;
}

static bool take_member(const char *name, const json_t *value, struct kvb_events_options *o)
{
	uint32_t hwm;

	if (strcmp(name, "enable_kv_cache_events") == 0) {
		o->on = json_is_true(value);
		return json_is_boolean(value);
	}
	if (strcmp(name, "publisher") == 0)
		return json_is_null(value) ||
		       (json_is_string(value) && strcmp(json_string_value(value), "zmq") == 0);
	if (strcmp(name, "endpoint") == 0)
		return take_text(value, o->endpoint);
	if (strcmp(name, "replay_endpoint") == 0)
		return take_text(value, o->replay_endpoint);
	if (strcmp(name, "topic") == 0)
		return take_text(value, o->topic);
	if (strcmp(name, "buffer_steps") == 0)
		return take_count(value, STEPS_MOST, &o->buffer_steps);
	if (strcmp(name, "max_queue_size") == 0)
		return take_count(value, INT32_MAX, &o->max_queue_size);
	if (strcmp(name, "hwm") != 0 || !take_count(value, INT32_MAX, &hwm))
		return false;
	o->hwm = (int)hwm;
	return true;
}

bool kvb_events_parse(const char *json, struct kvb_events_options *o)
{
	static const char option[] = "--kv-events-config";
	json_error_t error;
	json_t *config = json_loads(json, 0, &error), *value;
	const char *name;
	char text[200];
	bool good = json_is_object(config);

	if (config == NULL) {
		snprintf(text, sizeof(text), "not JSON: %.100s", error.text);
		return complain(option, text);
	}
	snprintf(text, sizeof(text), "not a JSON object");
	json_object_foreach(config, name, value)
	{
		if (good && !take_member(name, value, o)) {
			snprintf(text, sizeof(text), "\"%.60s\" is unknown or its value is wrong",
				name);
			good = false;
		}
	}
	json_decref(config);
	return good || complain(option, text);
}

bool kvb_lmcache_parse_controller(const char *text, struct kvb_lmcache_options *o)
{
	static const char option[] = "--lmcache-controller";

	while (*text != '\0') {
		size_t len = strcspn(text, ",");
		bool good = false;

		if (strncmp(text, "pull=", 5) == 0)
			good = copy_text(text + 5, len - 5, o->pull, sizeof(o->pull));
		else if (strncmp(text, "reply=", 6) == 0)
			good = copy_text(text + 6, len - 6, o->reply, sizeof(o->reply));
		if (!good)
			return complain(option, "expected pull=HOST:PORT,reply=HOST:PORT");
		text += len + (text[len] == ',');
	}
	o->on = true;
	return true;
}

bool kvb_lmcache_parse_coordinator(const char *text, struct kvb_lmcache_options *o)
{
	const char *from = strncmp(text, "http://", 7) == 0 ? text + 7 : text;
	const char *colon = strchr(from, ':');
	char *end;
	unsigned long port = colon == NULL ? 0 : strtoul(colon + 1, &end, 10);

	if (colon == NULL || colon == from || port == 0 || port > 65535 ||
		end[strspn(end, "/")] != '\0' ||
		!copy_text(from, strcspn(from, "/"), o->coordinator, sizeof(o->coordinator)))
		return complain("--lmcache-coordinator", "expected http://HOST:PORT");
	o->on = true;
	return true;
}

bool kvb_lmcache_parse_version(const char *text, struct kvb_lmcache_options *o)
{
	static const char *const names[] = {"0.3", "0.4", "0.5"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		o->version = (enum kvb_lmcache_version)i;
		return true;
	}
	return complain("--lmcache-version", "expected 0.3, 0.4 or 0.5");
}

bool kvb_lmcache_parse_hash(const char *text, struct kvb_lmcache_options *o)
{
	o->hash = text;
	if (kvw_lmcache_algorithm_parse(kvw_slice_of(text), &o->recipe.algorithm))
		return true;
	o->hash = "builtin";
	fprintf(stderr, "kvsim: --lmcache-hash %s: not known, so it is builtin\n", text);
	return true;
}

bool kvb_lmcache_complete(struct kvb_lmcache_options *o)
{
	const char *fault;

	if (!o->on || (o->coordinator[0] != '\0' && o->pull[0] == '\0'))
		return true;
	if (o->coordinator[0] != '\0')
		return complain("--lmcache-coordinator", "not with --lmcache-controller");
	if (o->pull[0] == '\0')
		return complain("--lmcache-controller", "pull=HOST:PORT is missing");
	if (o->reply[0] == '\0' && o->version != KVB_LMCACHE_03)
		return complain("--lmcache-controller", "reply=HOST:PORT is missing");
	o->recipe.extra =
		o->version == KVB_LMCACHE_03 ? KVW_LMCACHE_EXTRA_NONE : KVW_LMCACHE_EXTRA_EMPTY;
	fault = kvw_lmcache_recipe_fault(&o->recipe);
	return fault == NULL || complain("--lmcache-hash", fault);
}

bool kvb_nixl_parse(const char *text, struct kvb_nixl_options *o)
{
	static const struct {
		const char *name;
		size_t member;
	} parts[] = {
		{"bandwidth=", offsetof(struct kvb_nixl_options, bandwidth)},
		{"latency=", offsetof(struct kvb_nixl_options, latency_s)},
		{"lease=", offsetof(struct kvb_nixl_options, lease_s)},
	};
	const char *at = text;

	o->on = true;
	while (strcmp(text, "on") != 0 && *at != '\0') {
		size_t i = 0;
		char *end;
		double value;

		while (i < 3 && strncmp(at, parts[i].name, strlen(parts[i].name)) != 0)
			i++;
		value = i < 3 ? strtod(at + strlen(parts[i].name), &end) : -1;
		if (!(value >= 0 && value <= 1e15) || (*end != ',' && *end != '\0')) {
			fprintf(stderr, "kvsim: --nixl: found \"%s\", expected on, or some of "
					"bandwidth=BYTES,latency=SECONDS,lease=SECONDS\n",
				text);
			return false;
		}
		memcpy((char *)o + parts[i].member, &value, sizeof(value));
		at = end + (*end == ',');
	}
	return true;
}

bool kvb_transfer_parse(const char *text, struct kvb_nixl_options *o)
{
	static const char *const names[] = {[KVB_TRANSFER_NIXL] = "nixl",
		[KVB_TRANSFER_PUSH] = "nixl-push",
		[KVB_TRANSFER_MOONCAKE] = "mooncake",
		[KVB_TRANSFER_P2P] = "p2p",
		[KVB_TRANSFER_SHARED] = "shared",
		[KVB_TRANSFER_SIDECAR] = "sidecar"};
	size_t len = strcspn(text, ":"), i = 0;
	size_t count = sizeof(names) / sizeof(names[0]);

	while (i < count && (strlen(names[i]) != len || strncmp(text, names[i], len) != 0))
		i++;
	if (i == count || (i == KVB_TRANSFER_SHARED) != (text[len] == ':')) {
		fprintf(stderr, "kvsim: --transfer: found \"%s\", expected nixl, nixl-push, mooncake, "
				"p2p, shared:FOLDER or sidecar\n",
			text);
		return false;
	}
	o->on = true;
	o->kind = (enum kvb_transfer)i;
	o->folder = text + len + (text[len] == ':');
	return true;
}
