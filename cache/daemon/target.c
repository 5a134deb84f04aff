/*
 * target.c - parses a request's target: decoded parts of the path, values of the query.
 */
#include "daemon/target.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)
#define PARTS     5 /* "v1", "kv", bucket, key, "leases": no path has more parts */

static bool refuse(struct kvt_refusal *refusal, int status, const char *message)
{
	refusal->status = status;
	refusal->message = message;
	return false;
}

/* --- decoding --------------------------------------------------------------------------------- */

static int hex_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the length of the UTF-8 sequence at `text` (RFC 3629); 0: it is not UTF-8. */
static size_t utf8_sequence(const unsigned char *text, size_t len)
{
	unsigned char first = text[0], low = 0x80, high = 0xBF;
	size_t n = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;

	if (n == 0 || n > len || first > 0xF4)
		return 0;
	if (first == 0xE0)
		low = 0xA0;
	if (first == 0xED)
		high = 0x9F;
	if (first == 0xF0)
		low = 0x90;
	if (first == 0xF4)
		high = 0x8F;
	for (size_t i = 1; i < n; i++, low = 0x80, high = 0xBF)
		if (text[i] < low || text[i] > high)
			return 0;
	return n;
}

static bool is_utf8(struct kvw_slice text)
{
	for (size_t at = 0, n; at < text.len; at += n) {
		n = utf8_sequence((const unsigned char *)text.data + at, text.len - at);
		if (n == 0)
			return false;
	}
	return true;
}

/* Words for one part of a target in a refusal's text. */
struct part_words {
	const char *bad_escape, *nul, *too_long, *not_utf8;
};

#define PART_WORDS(what, most)                                                                     \
	{                                                                                          \
		"a '%' in the " what " that two hex digits do not follow",                         \
			"a NUL byte in the " what, "the " what " is longer than " most " bytes",   \
			"the " what " is not UTF-8"                                                \
	}

/* Decodes `from` behind out->text, at most `most` bytes. */
static bool decode(struct kvt_target *out, struct kvw_slice from, size_t most,
	const struct part_words *words, struct kvw_slice *part, struct kvt_refusal *refusal)
{
	char *to = out->text + out->used;
	size_t n = 0;

	for (size_t i = 0; i < from.len; i++, n++) {
		char c = from.data[i];

		if (c == '%') {
			if (from.len - i < 3 || hex_of(from.data[i + 1]) < 0 ||
				hex_of(from.data[i + 2]) < 0)
				return refuse(refusal, 400, words->bad_escape);
			c = (char)(hex_of(from.data[i + 1]) * 16 + hex_of(from.data[i + 2]));
			i += 2;
		}
		if (c == '\0')
			return refuse(refusal, 400, words->nul);
		if (n == most || out->used + n == sizeof(out->text))
			return refuse(refusal, 400, words->too_long);
		to[n] = c;
	}
	*part = (struct kvw_slice){to, n};
	if (!is_utf8(*part))
		return refuse(refusal, 400, words->not_utf8);
	out->used += n;
	return true;
}

/* --- the path --------------------------------------------------------------------------------- */

/* Cuts a path at its slashes. False: too many parts. */
static bool cut(struct kvw_slice path, struct kvw_slice parts[PARTS], size_t *count)
{
	size_t begin = 1; /* behind the first slash */

	*count = 0;
	for (size_t i = 1; i <= path.len; i++) {
		if (i < path.len && path.data[i] != '/')
			continue;
		if (*count == PARTS)
			return false;
		parts[(*count)++] = (struct kvw_slice){path.data + begin, i - begin};
		begin = i + 1;
	}
	return true;
}

static bool is(struct kvw_slice part, const char *word)
{
	return kvw_slice_equal(part, kvw_slice_of(word));
}

static bool take_names(struct kvt_target *out, const struct kvw_slice *parts, size_t count,
	struct kvt_refusal *refusal)
{
	static const struct part_words bucket = PART_WORDS("bucket", "128");
	static const struct part_words key = PART_WORDS("key", "1024");

	if (parts[2].len == 0)
		return refuse(refusal, 400, "the bucket is empty");
	if (count > 3 && parts[3].len == 0)
		return refuse(refusal, 400, "the key is empty");
	return decode(out, parts[2], KVT_BUCKET_MOST, &bucket, &out->bucket, refusal) &&
	       (count == 3 || decode(out, parts[3], KVT_OBJECT_KEY_MOST, &key, &out->key, refusal));
}

static bool take_path(struct kvt_target *out, struct kvw_slice path, struct kvt_refusal *refusal)
{
	static const char *const words[] = {"health", "ready", "metrics", "trace"};
	static const enum kvt_path plain[] = {
		KVT_PATH_HEALTH, KVT_PATH_READY, KVT_PATH_METRICS, KVT_PATH_TRACE};
	static const enum kvt_path of_kv[] = {KVT_PATH_BUCKET, KVT_PATH_OBJECT, KVT_PATH_LEASES};
	struct kvw_slice parts[PARTS];
	bool whole;
	size_t count;

	if (path.len == 0 || path.data[0] != '/')
		return refuse(refusal, 404, "no such path");
	whole = cut(path, parts, &count);
	if (count >= 3 && is(parts[0], "v1") && is(parts[1], "kv")) {
		if (!whole || (count == PARTS && !is(parts[4], "leases")))
			return refuse(refusal, 400,
				"expected /v1/kv/{bucket}/{key} or .../leases; a '/' inside of a "
				"key is written %2F");
		out->path = of_kv[count - 3];
		return take_names(out, parts, count, refusal);
	}
	if (whole && count == 4 && is(parts[0], "v1") && is(parts[1], "leases") &&
		is(parts[3], "release")) {
		out->path = KVT_PATH_RELEASE;
		out->id = parts[2];
		return true;
	}
	if (whole && count == 2 && is(parts[0], "v1") && is(parts[1], "buckets")) {
		out->path = KVT_PATH_BUCKETS;
		return true;
	}
	if (whole && count == 2 && is(parts[0], "v1") && is(parts[1], "generations")) {
		out->path = KVT_PATH_GENERATIONS;
		return true;
	}
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (whole && count == 1 && is(parts[0], words[i])) {
			out->path = plain[i];
			return true;
		}
	return refuse(refusal, 404, "no such path");
}

/* --- the query -------------------------------------------------------------------------------- */

static bool whole_number(struct kvw_slice text, uint64_t most, uint64_t *out)
{
	uint64_t value = 0;

	for (size_t i = 0; i < text.len; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text.data[i] - '0');
		if (value > most)
			return false;
	}
	*out = value;
	return text.len > 0;
}

/* Reads seconds as a decimal number, such as 30 or 30.0 or 1e-05, which Python writes for a
 * float. */
static bool seconds(struct kvw_slice text, uint64_t *ns)
{
	char copy[48], *end;
	double value;

	if (text.len == 0 || text.len >= sizeof(copy) || text.data[0] < '0' || text.data[0] > '9')
		return false;
	for (size_t i = 0; i < text.len; i++)
		if (memchr("0123456789.eE+-", text.data[i], 15) == NULL)
			return false;
	memcpy(copy, text.data, text.len);
	copy[text.len] = '\0';
	value = strtod(copy, &end);
	if (*end != '\0' || !(value > 0) || value > 1e9)
		return false;
	*ns = (uint64_t)(value * 1e9);
	if (*ns == 0)
		*ns = 1;
	return true;
}

static bool take_lease_value(struct kvt_target *out, struct kvw_slice name, struct kvw_slice value,
	struct kvt_refusal *refusal)
{
	uint64_t ms;

	if (is(name, "timeout_ms")) {
		if (out->has_timeout || !whole_number(value, KVT_QUERY_MS_MOST, &ms))
			return refuse(refusal, 400,
				"timeout_ms: expected one whole number of milliseconds");
		out->has_timeout = true;
		out->timeout_ns = ms * NS_PER_MS;
	} else if (is(name, "ttl_s")) {
		if (out->has_ttl || !seconds(value, &out->ttl_ns))
			return refuse(refusal, 400,
				"ttl_s: expected one number of seconds greater than 0");
		out->has_ttl = true;
	} else if (is(name, "check")) {
		if (!is(value, "0") && !is(value, "1"))
			return refuse(refusal, 400, "check: expected 0 or 1");
		out->unchecked = is(value, "0");
	}
	return true;
}

bool kvt_tenant_parse(struct kvw_slice text, struct kvt_tenant *out)
{
	struct kvt_tenant tenant;

	if (text.len != 2 * sizeof(tenant.bytes))
		return false;
	for (size_t i = 0; i < sizeof(tenant.bytes); i++) {
		int high = hex_of(text.data[2 * i]), low = hex_of(text.data[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		tenant.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*out = tenant;
	return true;
}

/* The table's id has the length of a tenant's hash, so that the same function reads both. */
static bool take_table_value(struct kvt_target *out, struct kvw_slice name, struct kvw_slice value,
	struct kvt_refusal *refusal)
{
	struct kvt_tenant id;
	uint64_t slot;

	if (is(name, "after") && !whole_number(value, INT64_MAX, &out->number))
		return refuse(refusal, 400, "after: expected a whole number");
	if (is(name, "id")) {
		if (!kvt_tenant_parse(value, &id))
			return refuse(refusal, 400, "id: expected 32 hex digits");
		memcpy(out->table, id.bytes, sizeof(out->table));
	}
	if (is(name, "slot")) {
		if (!whole_number(value, KVT_SLOTS - 1, &slot))
			return refuse(refusal, 400, "slot: expected 0 to 66559");
		out->slot = (uint32_t)slot;
	}
	if (is(name, "tenant")) {
		if (!kvt_tenant_parse(value, &out->tenant))
			return refuse(refusal, 400, "tenant: expected 32 hex digits");
		out->has_tenant = true;
	}
	return true;
}

static bool take_list_value(struct kvt_target *out, struct kvw_slice name, struct kvw_slice value,
	struct kvt_refusal *refusal)
{
	static const struct part_words after = PART_WORDS("value of after", "1024");
	uint64_t limit;

	if (is(name, "after")) {
		if (out->after.data != NULL)
			return refuse(refusal, 400, "after: expected it once");
		return decode(out, value, KVT_OBJECT_KEY_MOST, &after, &out->after, refusal);
	}
	if (is(name, "limit")) {
		if (!whole_number(value, KVT_LIST_MOST, &limit) || limit == 0)
			return refuse(refusal, 400, "limit: expected 1 to 1000");
		out->limit = limit;
	}
	if (is(name, "tenant")) {
		if (out->has_tenant || !kvt_tenant_parse(value, &out->tenant))
			return refuse(refusal, 400, "tenant: expected 32 hex digits, once");
		out->has_tenant = true;
	}
	return true;
}

static bool take_query(struct kvt_target *out, struct kvw_slice query, struct kvt_refusal *refusal)
{
	size_t begin = 0;
	bool good = true;

	for (size_t i = 0; i <= query.len && good; i++) {
		struct kvw_slice name, value = {0};
		const char *equals;

		if (i < query.len && query.data[i] != '&')
			continue;
		name = (struct kvw_slice){query.data + begin, i - begin};
		begin = i + 1;
		equals = name.len > 0 ? memchr(name.data, '=', name.len) : NULL;
		if (equals != NULL) {
			value.data = equals + 1;
			value.len = name.len - (size_t)(value.data - name.data);
			name.len = (size_t)(equals - name.data);
		}
		good = out->path == KVT_PATH_LEASES      ? take_lease_value(out, name, value, refusal)
		       : out->path == KVT_PATH_GENERATIONS ? take_table_value(out, name, value, refusal)
							   : take_list_value(out, name, value, refusal);
	}
	return good;
}

bool kvt_target_parse(struct kvw_slice target, struct kvt_target *out, struct kvt_refusal *refusal)
{
	const char *mark = target.len > 0 ? memchr(target.data, '?', target.len) : NULL;
	struct kvw_slice path = target, query = {0};

	memset(out, 0, offsetof(struct kvt_target, text));
	out->limit = KVT_LIST_MOST;
	out->slot = KVT_SLOT_NONE;
	if (mark != NULL) {
		path.len = (size_t)(mark - target.data);
		query = (struct kvw_slice){mark + 1, target.len - path.len - 1};
	}
	if (!take_path(out, path, refusal))
		return false;
	if (mark == NULL || (out->path != KVT_PATH_LEASES && out->path != KVT_PATH_BUCKET &&
				    out->path != KVT_PATH_TRACE &&
				    out->path != KVT_PATH_GENERATIONS))
		return true;
	return take_query(out, query, refusal);
}
