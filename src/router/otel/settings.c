/*
 * settings.c - see settings.h.
 *
 * A key counts if it differs from its default; else a variable counts if it is set, else the
 * default. So a collector that an operator of Kubernetes injects by OTEL_EXPORTER_OTLP_ENDPOINT
 * works without a configuration.
 */
#include "otel/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/log.h"
#include "config/schema.h"

#define RATIO_ALL  (UINT64_C(1) << 56) /* trace.h: `below` for every request */
#define PATH       "/v1/traces"
#define VALUE_MOST 4096 /* most bytes of a variable */
#define SERVICE_NAME_MOST 255

/* Where values come from while settings are made. */
struct source {
	const struct kvw_config *config;
	kvw_otel_getenv_fn *variable;
};

/* --- variables --- */

static void warn_of(const char *name, const char *value, const char *expected)
{
	kvw_warn("otel", "variable does not count name=%s found=\"%.80s\" expected=\"%s\"", name,
		value, expected);
}

/* Returns the variable's value; NULL: it is not set, is empty, or too long. */
static const char *value_of(const struct source *from, const char *name)
{
	const char *value = from->variable(name);

	if (value == NULL || value[0] == '\0')
		return NULL;
	if (strlen(value) > VALUE_MOST) {
		warn_of(name, "...", "at most 4096 bytes");
		return NULL;
	}
	return value;
}

/* Returns the value of OTEL_EXPORTER_OTLP_TRACES_<what>, or else of OTEL_EXPORTER_OTLP_<what>.
 * name[64] is set to the name of the variable. */
static const char *exporter_value(const struct source *from, const char *what, char name[64])
{
	const char *value;

	(void)snprintf(name, 64, "OTEL_EXPORTER_OTLP_TRACES_%s", what);
	value = value_of(from, name);
	if (value != NULL)
		return value;
	(void)snprintf(name, 64, "OTEL_EXPORTER_OTLP_%s", what);
	return value_of(from, name);
}

static enum kvw_err copy_text(const char *text, char **out)
{
	*out = strdup(text);
	return *out == NULL ? KVW_ENOMEM : KVW_OK;
}

/* --- lists --- */

/* Copies a text without the blanks around it and with percent-encoded bytes decoded. Control
 * characters become blanks, because they could end a header field. NULL: out of memory. */
static char *decoded(const char *text, size_t len)
{
	char *out, *at;

	while (len > 0 && (*text == ' ' || *text == '\t')) {
		text++;
		len--;
	}
	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		len--;
	out = at = malloc(len + 1);
	for (size_t i = 0; out != NULL && i < len; i++) {
		(void)kvw_percent_byte(text, len, &i, at);
		if (iscntrl((unsigned char)*at))
			*at = ' ';
		at++;
	}
	if (out != NULL)
		*at = '\0';
	return out;
}

static void release_pairs(struct kvw_otel_pair *pairs, size_t *count)
{
	while (*count > 0) {
		free(pairs[--*count].name);
		free(pairs[*count].value);
	}
}

static enum kvw_err add_pair(
	const char *text, size_t len, struct kvw_otel_pair *pairs, size_t *count)
{
	const char *equals = memchr(text, '=', len);
	struct kvw_otel_pair pair;

	if (equals == NULL || *count == KVW_OTEL_PAIRS_MOST)
		return KVW_EINVAL;
	pair.name = decoded(text, (size_t)(equals - text));
	pair.value = decoded(equals + 1, len - (size_t)(equals + 1 - text));
	if (pair.name == NULL || pair.value == NULL || pair.name[0] == '\0' ||
		strpbrk(pair.name, ": ") != NULL) {
		bool starved = pair.name == NULL || pair.value == NULL;

		free(pair.name);
		free(pair.value);
		return starved ? KVW_ENOMEM : KVW_EINVAL;
	}
	pairs[(*count)++] = pair;
	return KVW_OK;
}

enum kvw_err kvw_otel_pairs_read(const char *text, struct kvw_otel_pair *pairs, size_t *count)
{
	enum kvw_err err = KVW_OK;

	while (*text != '\0' && err == KVW_OK) {
		size_t len = strcspn(text, ",");

		if (strspn(text, " \t") < len)
			err = add_pair(text, len, pairs, count);
		text += len + (text[len] == ',');
	}
	return err;
}

/* Reads a list whose value is not shown, because headers have secrets. */
static enum kvw_err read_pairs(
	const char *name, const char *text, struct kvw_otel_pair *pairs, size_t *count)
{
	enum kvw_err err = kvw_otel_pairs_read(text, pairs, count);

	if (err == KVW_EINVAL)
		kvw_warn("otel",
			"list is not used beyond its first mistake name=%s expected=\"at most %d "
			"of "
			"NAME=VALUE, with commas between\"",
			name, KVW_OTEL_PAIRS_MOST);
	return err == KVW_EINVAL ? KVW_OK : err;
}

/* --- single settings --- */

/* Returns whether the URL has a path. */
static bool has_path(const char *url)
{
	const char *host = strstr(url, "://"), *path;

	path = host == NULL ? "" : host + 3 + strcspn(host + 3, "/?");
	return path[0] == '/' && path[1] != '\0' && path[1] != '?';
}

static enum kvw_err join_path(const char *url, char **out)
{
	size_t len = strcspn(url, "?"), size = strlen(url) + sizeof(PATH);
	const char *query = url + len;

	*out = malloc(size);
	if (*out == NULL)
		return KVW_ENOMEM;
	while (len > 0 && url[len - 1] == '/')
		len--;
	(void)snprintf(*out, size, "%.*s%s%s", (int)len, url, PATH, query);
	return KVW_OK;
}

static enum kvw_err make_endpoint(const struct source *from, struct kvw_otel_settings *out)
{
	const char *name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
	const char *url = from->config->tracing_endpoint;
	bool whole = true; /* the URL has its path already */

	if (url[0] != '\0') {
		whole = has_path(url);
	} else {
		url = value_of(from, name);
		if (url == NULL) {
			name = "OTEL_EXPORTER_OTLP_ENDPOINT";
			url = value_of(from, name);
			whole = false; /* the path is added even behind another one */
		}
		if (url == NULL)
			return KVW_OK;
		if (!kvw_config_is_collector(url)) {
			/* A password may precede an `@`, a token may follow a `?`. */
			warn_of(name, strpbrk(url, "@?") == NULL ? url : "(secret)",
				"a URL such as http://otel-collector:4318");
			return KVW_OK;
		}
	}
	return whole ? copy_text(url, &out->endpoint) : join_path(url, &out->endpoint);
}

/* Returns whether the key has its default, so that a variable counts. */
static bool is_usual(const struct source *from, enum kvw_key_index key)
{
	char text[KVW_KEY_PRINT];

	kvw_key_print(&kvw_keys[key], from->config, text);
	return strcmp(text, kvw_keys[key].def) == 0;
}

/* Returns the value of the variable's word where the key, which has two words, has its default;
 * else `said`, the key's value. */
static int choose(
	const struct source *from, enum kvw_key_index key, int said, const char *what)
{
	const struct kvw_word *words = kvw_keys[key].type->words;
	char name[64], expected[64];
	const char *value = exporter_value(from, what, name);

	if (value == NULL || !is_usual(from, key))
		return said;
	for (int i = 0; i < 2; i++)
		if (strcmp(value, words[i].name) == 0)
			return words[i].value;
	(void)snprintf(expected, sizeof(expected), "%s or %s", words[0].name, words[1].name);
	warn_of(name, value, expected);
	return said;
}

static void make_form(const struct source *from, struct kvw_otel_settings *out)
{
	const struct kvw_config *config = from->config;

	out->protocol = (enum kvw_otlp_protocol)choose(from, KVW_KEY_tracing_protocol,
		(int)config->tracing_protocol, "PROTOCOL");
	out->compression = (enum kvw_otlp_compression)choose(from, KVW_KEY_tracing_compression,
		(int)config->tracing_compression, "COMPRESSION");
}

/* Returns the milliseconds of a variable (value NULL: not set), or else those that the key says. */
static int64_t choose_ms(const struct source *from, enum kvw_key_index key, int64_t said,
	const char *name, const char *value)
{
	char *end;
	long ms;

	if (value == NULL || !is_usual(from, key))
		return said;
	ms = strtol(value, &end, 10);
	if (*end == '\0' && ms >= 100 && ms <= 60000)
		return ms;
	warn_of(name, value, "milliseconds, from 100 to 60000");
	return said;
}

static void make_times(const struct source *from, struct kvw_otel_settings *out)
{
	static const char delay[] = "OTEL_BSP_SCHEDULE_DELAY";
	char name[64];
	const char *timeout = exporter_value(from, "TIMEOUT", name);

	out->timeout_ms = choose_ms(from, KVW_KEY_tracing_timeout_ms,
		from->config->tracing_timeout_ms, name, timeout);
	out->interval_ms = choose_ms(from, KVW_KEY_tracing_interval_ms,
		from->config->tracing_interval_ms, delay, value_of(from, delay));
}

static enum kvw_err make_ca(const struct source *from, struct kvw_otel_settings *out)
{
	char name[64];
	const char *file = from->config->tracing_ca_file;

	if (file[0] == '\0')
		file = exporter_value(from, "CERTIFICATE", name);
	return file == NULL ? KVW_OK : copy_text(file, &out->ca_file);
}

static enum kvw_err make_headers(const struct source *from, struct kvw_otel_settings *out)
{
	char name[64] = "tracing.headers";
	const char *text = from->config->tracing_headers;

	if (text[0] == '\0')
		text = exporter_value(from, "HEADERS", name);
	return text == NULL ? KVW_OK : read_pairs(name, text, out->headers, &out->header_count);
}

/* service.name: the key, OTEL_SERVICE_NAME, the list of attributes, in this order. */
static enum kvw_err make_resource(const struct source *from, struct kvw_otel_settings *out)
{
	const char *list = value_of(from, "OTEL_RESOURCE_ATTRIBUTES");
	const char *name = from->config->tracing_service_name;
	enum kvw_err err = list == NULL ? KVW_OK
					: read_pairs("OTEL_RESOURCE_ATTRIBUTES", list,
						  out->resource, &out->resource_count);
	const char *variable = value_of(from, "OTEL_SERVICE_NAME");
	bool usual = is_usual(from, KVW_KEY_tracing_service_name);

	if (err != KVW_OK)
		return err;
	for (size_t i = out->resource_count; usual && i > 0; i--)
		if (strcmp(out->resource[i - 1].name, "service.name") == 0)
			name = out->resource[i - 1].value;
	if (usual && variable != NULL)
		name = variable;
	if (strlen(name) > SERVICE_NAME_MOST) {
		kvw_warn("otel",
			"the service's name does not count bytes=%zu expected=\"at most %d\"",
			strlen(name), SERVICE_NAME_MOST);
		name = kvw_keys[KVW_KEY_tracing_service_name].def;
	}
	return copy_text(name, &out->service_name);
}

/* --- sampling --- */

static uint64_t below_of(double ratio)
{
	return ratio >= 1 ? RATIO_ALL : (uint64_t)(ratio * (double)RATIO_ALL);
}

/* Reads the argument of a sampler by ratio; without one it is 1. */
static double sampler_ratio(const struct source *from)
{
	const char *text = value_of(from, "OTEL_TRACES_SAMPLER_ARG");
	double ratio;
	char *end;

	if (text == NULL)
		return 1;
	ratio = strtod(text, &end);
	if (*end == '\0' && ratio >= 0 && ratio <= 1)
		return ratio;
	warn_of("OTEL_TRACES_SAMPLER_ARG", text, "a number from 0 to 1");
	return 1;
}

static void take_sampler(const struct source *from, struct kvw_trace_sampling *out)
{
	static const char name[] = "OTEL_TRACES_SAMPLER";
	const char *sampler = value_of(from, name);
	bool parent;

	if (sampler == NULL)
		return;
	parent = strncmp(sampler, "parentbased_", 12) == 0;
	if (strcmp(sampler + (parent ? 12 : 0), "always_on") == 0) {
		out->below = RATIO_ALL;
	} else if (strcmp(sampler + (parent ? 12 : 0), "always_off") == 0) {
		out->below = 0;
	} else if (strcmp(sampler + (parent ? 12 : 0), "traceidratio") == 0) {
		out->below = below_of(sampler_ratio(from));
	} else {
		warn_of(name, sampler,
			"always_on, always_off, traceidratio or one of these behind parentbased_");
		return;
	}
	out->parent = parent;
}

static void make_sampling(const struct source *from, size_t loops, struct kvw_trace_sampling *out)
{
	const struct kvw_config *config = from->config;
	uint64_t tail = (uint64_t)config->tracing_tail_per_second;

	*out = (struct kvw_trace_sampling){
		.on = true,
		.parent = config->tracing_follow_parent,
		.below = below_of(config->tracing_ratio),
		.slow_ns = config->tracing_slow_ms * 1000000,
		.failed = config->tracing_failed,
		.tail_per_second = (uint32_t)((tail + loops - 1) / loops),
	};
	if (is_usual(from, KVW_KEY_tracing_ratio) && is_usual(from, KVW_KEY_tracing_follow_parent))
		take_sampler(from, out);
}

/* --- all of them --- */

static bool is_disabled(const struct source *from)
{
	const char *text = value_of(from, "OTEL_SDK_DISABLED");

	if (text == NULL || strcasecmp(text, "false") == 0)
		return false;
	if (strcasecmp(text, "true") == 0)
		return true;
	warn_of("OTEL_SDK_DISABLED", text, "true or false");
	return false;
}

/* Returns whether spans have a way to be exported that kvway knows. */
static bool exports(const struct source *from)
{
	const char *exporter = value_of(from, "OTEL_TRACES_EXPORTER");

	if (from->config->tracing_endpoint[0] != '\0' || exporter == NULL ||
		strcmp(exporter, "otlp") == 0)
		return true;
	if (strcmp(exporter, "none") != 0)
		warn_of("OTEL_TRACES_EXPORTER", exporter, "otlp or none");
	return strcmp(exporter, "none") != 0;
}

enum kvw_err kvw_otel_settings_make(const struct kvw_config *config, size_t loops,
	kvw_otel_getenv_fn *variable, struct kvw_otel_settings *out)
{
	const struct source from = {config, variable};
	enum kvw_err err;

	*out = (struct kvw_otel_settings){.buffer = config->tracing_buffer};
	if (is_disabled(&from) || !exports(&from))
		return KVW_OK;
	err = make_endpoint(&from, out);
	if (err != KVW_OK || out->endpoint == NULL)
		return err;
	if (config->trace_requests == 0) {
		kvw_warn("otel", "no spans are exported: trace.requests is 0, expected 1 or more");
		kvw_otel_settings_finish(out);
		return KVW_OK;
	}
	make_form(&from, out);
	make_times(&from, out);
	make_sampling(&from, loops, &out->sampling);
	err = make_ca(&from, out);
	if (err == KVW_OK)
		err = make_headers(&from, out);
	if (err == KVW_OK)
		err = make_resource(&from, out);
	if (err != KVW_OK)
		kvw_otel_settings_finish(out);
	return err;
}

void kvw_otel_settings_finish(struct kvw_otel_settings *settings)
{
	release_pairs(settings->headers, &settings->header_count);
	release_pairs(settings->resource, &settings->resource_count);
	free(settings->endpoint);
	free(settings->ca_file);
	free(settings->service_name);
	*settings = (struct kvw_otel_settings){0};
}
