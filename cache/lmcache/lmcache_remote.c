/*
 * lmcache_remote.c - translates LMCache's remote_url, and its keys in extra_config, to settings
 * l2.*.
 *
 * LMCache has several keys for the parts of one kvtier URL: the login, TLS, a cluster, the
 * database. Some keys apply only to Valkey in LMCache; in kvtier they apply to any server that the
 * URL names. Values that LMCache stored are neither read nor removed.
 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "chunk/l2_url.h"
#include "lmcache/lmcache.h"

#define URL_ROOM    2304 /* settings.def allows at most 2048 bytes for a text */
#define CONNECTIONS 64

static const struct kvt_lmcache_value *valid(const struct kvt_lmcache_reading *r, size_t key)
{
	return r->values[key].valid ? &r->values[key] : NULL;
}

static const char *text_of(const struct kvt_lmcache_reading *r, size_t key, size_t or_key)
{
	const struct kvt_lmcache_value *value = valid(r, key);

	if (value == NULL && or_key < KVT_LMC_COUNT)
		value = valid(r, or_key);
	return value != NULL ? value->text : "";
}

static bool is_on(const struct kvt_lmcache_reading *r, size_t key)
{
	return valid(r, key) != NULL && r->values[key].flag;
}

/* --- a URL in the making ---------------------------------------------------------------------- */

/* A text in a buffer of fixed size. If it is cut off at the end, `full` is true. */
struct url {
	char text[URL_ROOM];
	size_t used;
	bool full;
};

static void append(struct url *url, const char *text, size_t len)
{
	if (len >= sizeof(url->text) - url->used) {
		url->full = true;
		return;
	}
	memcpy(url->text + url->used, text, len);
	url->used += len;
	url->text[url->used] = '\0';
}

static void append_text(struct url *url, const char *text)
{
	append(url, text, strlen(text));
}

/* Appends a text in which all characters but letters and digits are written as %XX. */
static void append_encoded(struct url *url, const char *text)
{
	char hex[4];

	for (; *text != '\0'; text++) {
		if (isascii(*text) && (isalnum(*text) || strchr("-._~", *text) != NULL)) {
			append(url, text, 1);
		} else {
			snprintf(hex, sizeof(hex), "%%%02X", (unsigned char)*text);
			append(url, hex, 3);
		}
	}
}

static bool is_name(char c)
{
	return isascii(c) && (isalnum(c) || c == '_');
}

/* Appends a text in which $NAME and ${NAME} are replaced by the environment's values; unknown names
 * are not changed. */
static void append_expanded(struct url *url, const char *text, const char *const *variables)
{
	while (*text != '\0') {
		bool braces = text[0] == '$' && text[1] == '{';
		const char *name = text + 1 + braces, *end = name, *value = NULL;

		while (text[0] == '$' && is_name(*end))
			end++;
		if (end > name && (!braces || *end == '}'))
			value = kvt_lmcache_variable(variables, name, (size_t)(end - name));
		if (value == NULL) {
			append(url, text++, 1);
			continue;
		}
		append_text(url, value);
		text = end + braces;
	}
}

/* --- its parts -------------------------------------------------------------------------------- */

/* Appends the scheme that kvtier uses, with TLS and a cluster if extra_config requests them. */
static void append_scheme(struct kvt_lmcache_reading *r, struct url *url, struct kvw_slice scheme)
{
	static const char *const bases[] = {"redis", "valkey"};
	const char *mode = text_of(r, KVT_LMC_EXTRA_valkey_mode, KVT_LMC_COUNT);
	struct kvw_slice rest = scheme;

	if (kvw_slice_equal(scheme, KVW_SLICE("resp")))
		scheme = rest = KVW_SLICE("redis");
	for (size_t i = 0; i < 2; i++) {
		size_t len = strlen(bases[i]);

		if (scheme.len < len || memcmp(scheme.data, bases[i], len) != 0)
			continue;
		append(url, scheme.data, len);
		rest = (struct kvw_slice){scheme.data + len, scheme.len - len};
		if (is_on(r, KVT_LMC_EXTRA_tls_enable) && (rest.len == 0 || rest.data[0] == '-'))
			append_text(url, "s");
	}
	append(url, rest.data, rest.len);
	if (strcasecmp(mode, "cluster") == 0 && memchr(scheme.data, '-', scheme.len) == NULL &&
		rest.data != scheme.data)
		append_text(url, "-cluster");
	append_text(url, "://");
}

/* The options after a '?', percent-encoded; empty if there are none. */
struct options {
	struct kvw_slice database, username, password;
};

/* For resp://, LMCache also takes the login from variables. */
static const char *or_variable(
	struct kvt_lmcache_reading *r, const char *text, const char *name, bool resp)
{
	const char *value = NULL;

	if (resp && *text == '\0')
		value = kvt_lmcache_variable(r->source->variables, name, strlen(name));
	return value != NULL ? value : text;
}

static void append_login(
	struct kvt_lmcache_reading *r, struct url *url, const struct options *o, bool resp)
{
	const char *user = text_of(r, KVT_LMC_EXTRA_username, KVT_LMC_EXTRA_valkey_username);
	const char *password = text_of(r, KVT_LMC_EXTRA_password, KVT_LMC_EXTRA_valkey_password);

	user = or_variable(r, user, "LMCACHE_RESP_USERNAME", resp);
	password = or_variable(r, password, "LMCACHE_RESP_PASSWORD", resp);
	if (*user == '\0' && *password == '\0' && o->username.len == 0 && o->password.len == 0)
		return;
	append_encoded(url, user);
	if (*user == '\0')
		append(url, o->username.data, o->username.len);
	append_text(url, ":");
	append_encoded(url, password);
	if (*password == '\0')
		append(url, o->password.data, o->password.len);
	append_text(url, "@");
}

/* Sets the path of a file with a certificate or key. */
static void put_file(struct kvt_lmcache_reading *r, const char *path, struct kvw_slice value)
{
	char file[URL_ROOM];

	if (kvw_redis_url_decode(value.data, value.len, file, sizeof(file)))
		kvt_lmcache_put(r, KVT_LMC_remote_url, path, file);
	else
		kvt_lmcache_mistake(r, KVT_LMC_remote_url,
			"found an option for %s with a broken %%XX, expected a path", path);
}

static void take_option(struct kvt_lmcache_reading *r, struct kvw_slice name,
	struct kvw_slice value, bool tls, struct options *out)
{
	char shown[KVW_REPORT_QUOTE];
	bool ssl = name.len > 4 && memcmp(name.data, "ssl_", 4) == 0;
	bool checks = kvw_slice_equal(value, KVW_SLICE("required")) ||
		      kvw_slice_equal(value, KVW_SLICE("True")) ||
		      kvw_slice_equal(value, KVW_SLICE("true"));

	if (kvw_slice_equal(name, KVW_SLICE("db")))
		out->database = value;
	else if (kvw_slice_equal(name, KVW_SLICE("username")))
		out->username = value;
	else if (kvw_slice_equal(name, KVW_SLICE("password")))
		out->password = value;
	else if (kvw_slice_equal(name, KVW_SLICE("ssl_ca_certs")))
		put_file(r, "l2.tls_ca", value);
	else if (kvw_slice_equal(name, KVW_SLICE("ssl_certfile")))
		put_file(r, "l2.tls_certificate", value);
	else if (kvw_slice_equal(name, KVW_SLICE("ssl_keyfile")))
		put_file(r, "l2.tls_key", value);
	else if (tls && ssl && !checks)
		kvt_lmcache_mistake(r, KVT_LMC_remote_url,
			"the option %s cannot be had: the server's certificate and name are always "
			"checked; `l2.tls_ca` or `ssl_ca_certs` names its issuer",
			kvw_report_quote(shown, name.data, name.len));
	else if (!tls || !ssl)
		kvt_lmcache_note(r, KVT_LMC_remote_url, "the option %s is ignored: %s",
			kvw_report_quote(shown, name.data, name.len),
			ssl ? "there is no TLS" : "of redis-py alone");
}

/* Reads percent-encoded NAME=VALUE&NAME=VALUE, as redis-py does. */
static void take_options(
	struct kvt_lmcache_reading *r, const char *text, bool tls, struct options *out)
{
	while (*text != '\0') {
		size_t len = strcspn(text, "&"), name = strcspn(text, "=&");
		size_t before = name < len ? name + 1 : len;

		if (name > 0)
			take_option(r, (struct kvw_slice){text, name},
				(struct kvw_slice){text + before, len - before}, tls, out);
		text += len;
		text += *text == '&';
	}
}

/* Appends the servers that follow the scheme. LMCache accepts the scheme before each server, and
 * "http://" before a daemon's. */
static void append_servers(
	struct url *url, struct kvw_slice scheme, const char *text, const char *const *variables)
{
	size_t start = url->used, used;
	char before[64];
	char *found;

	append_expanded(url, text, variables);
	if (strncmp(url->text + start, "http://", 7) == 0) {
		memmove(url->text + start, url->text + start + 7, url->used - start - 7 + 1);
		url->used -= 7;
	}
	snprintf(before, sizeof(before), "%.*s://", (int)(scheme.len < 50 ? scheme.len : 50),
		scheme.data);
	while ((found = strstr(url->text + start, before)) != NULL) {
		used = (size_t)(found - url->text);
		memmove(found, found + strlen(before), url->used - used - strlen(before) + 1);
		url->used -= strlen(before);
	}
}

/* Builds the whole URL. `rest`: a buffer for the text after the scheme. */
static void build(
	struct kvt_lmcache_reading *r, const char *text, struct url *url, struct url *rest)
{
	const char *colon = strstr(text, "://");
	struct kvw_slice scheme = {text, (size_t)(colon - text)};
	const struct kvt_lmcache_value *database = valid(r, KVT_LMC_EXTRA_valkey_database);
	const struct kvw_redis_scheme *redis;
	struct options options = {0};
	char number[24], *login, *query = NULL;

	append_scheme(r, url, scheme);
	append_servers(rest, scheme, colon + 3, r->source->variables);
	redis = kvw_redis_scheme_of(url->text);
	login = strrchr(rest->text, '@');
	if (redis != NULL)
		query = strchr(login != NULL ? login : rest->text, '?');
	if (query != NULL) {
		*query++ = '\0';
		take_options(r, query, redis->tls, &options);
	}
	if (login == NULL || login == rest->text)
		append_login(r, url, &options, kvw_slice_equal(scheme, KVW_SLICE("resp")));
	append_text(url, rest->text + (login == rest->text));
	if (options.database.len > 0) {
		append_text(url, "?db=");
		append(url, options.database.data, options.database.len);
	} else if (database != NULL && strchr(rest->text, '/') == NULL) {
		snprintf(number, sizeof(number), "/%" PRId64, database->count);
		append_text(url, number);
	}
	url->full = url->full || rest->full;
}

static void settle_url(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *value = valid(r, KVT_LMC_remote_url);
	char shown[KVT_LMCACHE_SHOW];
	struct kvt_l2_url parsed;
	const char *expected = "a URL such as redis://HOST:6379";
	struct url url = {0}, rest = {0};

	if (value == NULL || value->len == 0)
		return;
	if (strstr(value->text, "://") != NULL) {
		build(r, value->text, &url, &rest);
		expected = kvt_l2_url_parse(url.text, &parsed);
		OPENSSL_cleanse(&parsed, sizeof(parsed));
	}
	if (url.full)
		expected = "a shorter URL";
	if (expected == NULL)
		kvt_lmcache_put(r, KVT_LMC_remote_url, "l2.url", url.text);
	else
		kvt_lmcache_mistake(r, KVT_LMC_remote_url,
			"found %s, expected %s; there is no shared tier",
			kvt_lmcache_show(value, KVT_LMC_remote_url, shown), expected);
	OPENSSL_cleanse(&url, sizeof(url));
	OPENSSL_cleanse(&rest, sizeof(rest));
}

/* --- the rest --------------------------------------------------------------------------------- */

/* LMCache's client of Sentinels takes its deadline from a variable. */
static void settle_timeout(struct kvt_lmcache_reading *r)
{
	const char *seconds = kvt_lmcache_variable(r->source->variables, "REDIS_TIMEOUT", 13);
	char text[32], *end;
	double number;

	if (seconds == NULL ||
		strstr(text_of(r, KVT_LMC_remote_url, KVT_LMC_COUNT), "-sentinel://") == NULL)
		return;
	number = strtod(seconds, &end);
	if (end == seconds || *end != '\0' || !(number > 0) || number > 3600) {
		kvt_lmcache_mistake(r, KVT_LMC_remote_url,
			"REDIS_TIMEOUT is no number of seconds up to 3600: `l2.deadline` applies");
		return;
	}
	snprintf(text, sizeof(text), "%.0fms", ceil(number * 1000));
	kvt_lmcache_put(r, KVT_LMC_remote_url, "l2.deadline", text);
}

void kvt_lmcache_settle_remote(struct kvt_lmcache_reading *r)
{
	const struct kvt_lmcache_value *most =
		valid(r, KVT_LMC_EXTRA_sagemaker_hyperpod_max_connections_per_host);
	const struct kvt_lmcache_value *ttl = valid(r, KVT_LMC_EXTRA_valkey_ttl_sec);
	const char *service;
	char text[32];

	settle_url(r);
	service = kvt_lmcache_variable(r->source->variables, "REDIS_SERVICE_NAME", 18);
	if (service != NULL && *service != '\0' &&
		strstr(text_of(r, KVT_LMC_remote_url, KVT_LMC_COUNT), "-sentinel://") != NULL)
		kvt_lmcache_put(r, KVT_LMC_remote_url, "l2.service", service);
	settle_timeout(r);
	if (most != NULL) {
		snprintf(text, sizeof(text), "%" PRId64,
			most->count < CONNECTIONS ? most->count : CONNECTIONS);
		kvt_lmcache_put(r, KVT_LMC_EXTRA_sagemaker_hyperpod_max_connections_per_host,
			"l2.connections", text);
	}
	if (ttl != NULL && is_on(r, KVT_LMC_EXTRA_valkey_enable_ttl)) {
		snprintf(text, sizeof(text), "%" PRId64 "s", ttl->count);
		kvt_lmcache_put(r, KVT_LMC_EXTRA_valkey_ttl_sec, "l2.ttl", text);
	}
}
