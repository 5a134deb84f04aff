/*
 * setting_types.c - how the text of a key becomes a value, and a value its text.
 *
 * Numbers, sizes and durations are read by the parsers that the router's configuration uses, so
 * that one file is read like the other; what is of the cache alone (`auto`, policies, backings,
 * ZeroMQ addresses, fingerprints) is here.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <openssl/crypto.h>

#include "chunk/l2_url.h"
#include "policies/policy.h"
#include "options/setting.h"
#include "settings/suggest.h"

#define TEXT_MOST      2048 /* bytes of a text */
#define SHM_NAME_MOST  200
#define NS_PER_MS      UINT64_C(1000000)
#define HEX_DIGITS_KEY 64
#define HOST_MOST      255

/* Reads with a parser of config/types.h. */
static enum kvw_err parse_as(const struct kvw_type *type, struct kvw_slice text,
	union kvw_value *out, struct kvw_fault *fault)
{
	return type->parse(type, text, NULL, out, fault);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static enum kvw_err parse_size(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_as(&kvw_type_SIZE, text, &value, fault);

	if (err == KVW_OK)
		out->size = value.size;
	return err;
}

static enum kvw_err parse_auto_size(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	if (kvw_slice_equal(text, KVW_SLICE("auto"))) {
		out->size = 0;
		return KVW_OK;
	}
	if (kvw_slice_equal(text, KVW_SLICE("0"))) {
		kvw_fault_suggest(fault, "auto");
		return KVW_EINVAL;
	}
	return parse_size(text, out, fault);
}

static enum kvw_err parse_count(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_as(&kvw_type_INT, text, &value, fault);

	if (err == KVW_OK && (value.integer < 0 || value.integer > UINT32_MAX))
		err = KVW_EINVAL;
	if (err == KVW_OK)
		out->word = (uint32_t)value.integer;
	return err;
}

static enum kvw_err parse_auto_count(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	if (kvw_slice_equal(text, KVW_SLICE("auto"))) {
		out->word = 0;
		return KVW_OK;
	}
	if (kvw_slice_equal(text, KVW_SLICE("0"))) {
		kvw_fault_suggest(fault, "auto");
		return KVW_EINVAL;
	}
	return parse_count(text, out, fault);
}

static enum kvw_err parse_node(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_as(&kvw_type_INT, text, &value, fault);

	if (err == KVW_OK && (value.integer < INT32_MIN || value.integer > INT32_MAX))
		err = KVW_EINVAL;
	if (err == KVW_OK)
		out->node = (int32_t)value.integer;
	return err;
}

static enum kvw_err parse_flag(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_as(&kvw_type_BOOL, text, &value, fault);

	if (err == KVW_OK)
		out->word = value.flag;
	return err;
}

static enum kvw_err parse_time(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_as(&kvw_type_DURATION, text, &value, fault);

	if (err == KVW_OK && (uint64_t)value.integer > UINT64_MAX / NS_PER_MS)
		err = KVW_EINVAL;
	if (err == KVW_OK)
		out->size = (uint64_t)value.integer * NS_PER_MS;
	return err;
}

static enum kvw_err parse_number(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err = parse_as(&kvw_type_RATIO, text, &value, fault);

	if (err == KVW_OK)
		out->number = value.ratio;
	return err;
}

static int compare_words(const union kvt_setting_value *a, const union kvt_setting_value *b)
{
	return (a->word > b->word) - (a->word < b->word);
}

static int compare_nodes(const union kvt_setting_value *a, const union kvt_setting_value *b)
{
	return (a->node > b->node) - (a->node < b->node);
}

static int compare_sizes(const union kvt_setting_value *a, const union kvt_setting_value *b)
{
	return (a->size > b->size) - (a->size < b->size);
}

/* Not a number is beyond every limit. */
static int compare_numbers(const union kvt_setting_value *a, const union kvt_setting_value *b)
{
	if (isnan(a->number))
		return 1;
	return (a->number > b->number) - (a->number < b->number);
}

static void print_size(const union kvt_setting_value *value, char *out, size_t room)
{
	static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
	uint64_t size = value->size;
	size_t unit = 0;

	while (size != 0 && size % 1024 == 0 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		size /= 1024;
		unit++;
	}
	snprintf(out, room, "%" PRIu64 "%s", size, units[unit]);
}

static void print_auto_size(const union kvt_setting_value *value, char *out, size_t room)
{
	if (value->size == 0)
		snprintf(out, room, "auto");
	else
		print_size(value, out, room);
}

static void print_count(const union kvt_setting_value *value, char *out, size_t room)
{
	snprintf(out, room, "%" PRIu32, value->word);
}

static void print_auto_count(const union kvt_setting_value *value, char *out, size_t room)
{
	if (value->word == 0)
		snprintf(out, room, "auto");
	else
		print_count(value, out, room);
}

static void print_node(const union kvt_setting_value *value, char *out, size_t room)
{
	snprintf(out, room, "%" PRId32, value->node);
}

static void print_flag(const union kvt_setting_value *value, char *out, size_t room)
{
	snprintf(out, room, "%s", value->word != 0 ? "true" : "false");
}

/* The largest unit that divides it; a C caller's odd nanoseconds are cut. */
static void print_time(const union kvt_setting_value *value, char *out, size_t room)
{
	uint64_t ms = value->size / NS_PER_MS;

	if (ms % 1000 != 0)
		snprintf(out, room, "%" PRIu64 "ms", ms);
	else if (ms == 0 || ms % 60000 != 0)
		snprintf(out, room, "%" PRIu64 "s", ms / 1000);
	else if (ms % 3600000 != 0)
		snprintf(out, room, "%" PRIu64 "m", ms / 60000);
	else
		snprintf(out, room, "%" PRIu64 "h", ms / 3600000);
}

static void print_number(const union kvt_setting_value *value, char *out, size_t room)
{
	snprintf(out, room, "%.15g", value->number);
}

/* --- texts ------------------------------------------------------------------------------------ */

static enum kvw_err copy_text(struct kvw_slice text, union kvt_setting_value *out)
{
	char *copy = malloc(text.len + 1);

	if (copy == NULL)
		return KVW_ENOMEM;
	if (text.len > 0)
		memcpy(copy, text.data, text.len);
	copy[text.len] = '\0';
	out->text = copy;
	return KVW_OK;
}

/* C0, DEL and C1, the separators that YAML takes for ends of lines, and the byte order mark. */
static bool is_control(const unsigned char *c)
{
	return c[0] < 0x20 || c[0] == 0x7F || (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) ||
	       (c[0] == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9)) ||
	       (c[0] == 0xEF && c[1] == 0xBB && c[2] == 0xBF);
}

static enum kvw_err parse_text(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	(void)fault;
	for (size_t i = 0; i < text.len; i++)
		if (is_control((const unsigned char *)text.data + i)) /* a NUL ends the text */
			return KVW_EINVAL;
	return text.len > TEXT_MOST ? KVW_EINVAL : copy_text(text, out);
}

/* The words of a type, joined, as what was expected; the nearest as suggestion. True: it is one. */
static bool choose(
	struct kvw_slice text, const char *first, const char *const *words, struct kvw_fault *fault)
{
	struct kvw_suggest near;
	bool found = false;
	size_t used;

	used = (size_t)snprintf(fault->expected, sizeof(fault->expected), "one of ");
	kvw_suggest_start(&near, text.data != NULL ? text.data : "");
	for (size_t i = 0; i == 0 || words[i - 1] != NULL; i++) {
		const char *word = i == 0 ? first : words[i - 1];
		int n = snprintf(fault->expected + used, sizeof(fault->expected) - used, "%s%s",
			i == 0 ? "" : ", ", word);

		if (n > 0 && (size_t)n < sizeof(fault->expected) - used)
			used += (size_t)n;
		kvw_suggest_offer(&near, word, word);
		found = found || kvw_slice_equal(text, kvw_slice_of(word));
	}
	if (near.best != NULL && !found)
		kvw_fault_suggest(fault, "%s", near.best);
	return found;
}

static enum kvw_err parse_policy(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	return choose(text, "default", kvt_policy_names(), fault) ? copy_text(text, out)
								  : KVW_EINVAL;
}

static enum kvw_err parse_io_mode(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	static const char *const words[] = {"uring", "threads", NULL};

	return choose(text, "auto", words, fault) ? copy_text(text, out) : KVW_EINVAL;
}

static enum kvw_err parse_threads(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	static const char *const words[] = {"caller", NULL};

	if (!choose(text, "own", words, fault))
		return KVW_EINVAL;
	out->word = kvw_slice_equal(text, KVW_SLICE("own")) ? KVT_THREADS_OWN : KVT_THREADS_CALLER;
	return KVW_OK;
}

/* Access to a file, as its mode. */
static enum kvw_err parse_access(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	static const char *const words[] = {"group", "all", NULL};

	if (!choose(text, "owner", words, fault))
		return KVW_EINVAL;
	out->word = kvw_slice_equal(text, KVW_SLICE("all"))     ? 0666
		    : kvw_slice_equal(text, KVW_SLICE("group")) ? 0660
								: 0600;
	return KVW_OK;
}

static bool is_name_character(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

/* What follows "shm:". Not "." or "..": it becomes a file of /dev/shm. */
static bool is_segment_name(struct kvw_slice name)
{
	if (name.len == 0 || name.len > SHM_NAME_MOST || name.data[0] == '.')
		return false;
	for (size_t i = 0; i < name.len; i++)
		if (!is_name_character(name.data[i]))
			return false;
	return true;
}

static enum kvw_err parse_backing(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	static const char *const words[] = {"hugetlb", "shm:NAME", NULL};

	if (text.len > 4 && memcmp(text.data, "shm:", 4) == 0) {
		snprintf(fault->expected, sizeof(fault->expected),
			"shm: and a name of letters, digits, '-', '_' and '.', at most %d of them",
			SHM_NAME_MOST);
		if (!is_segment_name((struct kvw_slice){text.data + 4, text.len - 4}))
			return KVW_EINVAL;
		return copy_text(text, out);
	}
	if (text.len > 3 && memcmp(text.data, "fd:", 3) == 0) { /* for programs, not for files */
		for (size_t i = 3; i < text.len; i++)
			if (text.data[i] < '0' || text.data[i] > '9' || text.len > 12)
				return KVW_EINVAL;
		return copy_text(text, out);
	}
	if (!choose(text, "anon", words, fault) || kvw_slice_equal(text, KVW_SLICE("shm:NAME")))
		return KVW_EINVAL;
	return copy_text(text, out);
}

/* tcp://HOST:PORT or ipc:///PATH. */
static bool is_endpoint(struct kvw_slice text)
{
	const char *colon;
	char *end = NULL;
	unsigned long port;

	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] <= 0x20 || text.data[i] >= 0x7F)
			return false;
	if (text.len > 6 && memcmp(text.data, "ipc://", 6) == 0)
		return text.len <= 6 + 107; /* sun_path */
	if (text.len <= 6 || memcmp(text.data, "tcp://", 6) != 0)
		return false;
	colon = memrchr(text.data + 6, ':', text.len - 6);
	if (colon == NULL || colon == text.data + 6 || colon[1] < '0' || colon[1] > '9')
		return false;
	port = strtoul(colon + 1, &end, 10);
	return end == text.data + text.len && port >= 1 && port <= 65535;
}

static enum kvw_err parse_endpoint(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	char repaired[128];
	int n;

	if (text.len <= TEXT_MOST && (text.len == 0 || is_endpoint(text)))
		return copy_text(text, out);
	n = snprintf(repaired, sizeof(repaired), "tcp://%.*s",
		(int)(text.len < 120 ? text.len : 120), text.data);
	if (n > 0 && (size_t)n < sizeof(repaired) && memchr(text.data, '/', text.len) == NULL &&
		is_endpoint(kvw_slice_of(repaired)))
		kvw_fault_suggest(fault, "%s", repaired);
	return KVW_EINVAL;
}

static enum kvw_err parse_l2_url(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	struct kvt_l2_url url;
	const char *expected = NULL;
	enum kvw_err err = parse_text(text, out, fault);

	if (err != KVW_OK || text.len == 0)
		return err;
	expected = kvt_l2_url_parse(out->text, &url);
	OPENSSL_cleanse(&url, sizeof(url)); /* may hold a password */
	if (expected == NULL)
		return KVW_OK;
	free(out->text);
	snprintf(fault->expected, sizeof(fault->expected), "%s", expected);
	if (memchr(text.data, '@', text.len) != NULL)
		fault->found = "a URL with a login";
	return KVW_EINVAL;
}

static enum kvw_err parse_l2_format(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	static const char *const words[] = {"lmcache", NULL};

	return choose(text, "native", words, fault) ? copy_text(text, out) : KVW_EINVAL;
}

/* Plain where that is safe, else in double quotes. Texts hold no control characters. */
static void print_text(const union kvt_setting_value *value, char *out, size_t room)
{
	const char *text = value->text;
	size_t used = 0;
	bool plain = *text != '\0' && *text != '-' && *text != '~';

	for (const char *c = text; *c != '\0'; c++)
		plain = plain && (is_name_character(*c) || *c == '/' ||
					 (*c == ':' && c[1] != '\0' && c[1] != ' '));
	plain = plain && strcmp(text, "null") != 0;
	if (plain) {
		snprintf(out, room, "%s", text);
		return;
	}
	out[used++] = '"';
	for (const char *c = text; *c != '\0' && used + 4 < room; c++) {
		if (*c == '"' || *c == '\\')
			out[used++] = '\\';
		out[used++] = *c;
	}
	out[used++] = '"';
	out[used] = '\0';
}

static void print_threads(const union kvt_setting_value *value, char *out, size_t room)
{
	snprintf(out, room, "%s", value->word == KVT_THREADS_OWN ? "own" : "caller");
}

/* --- of programs ------------------------------------------------------------------------------ */

/* HOST:PORT, or nothing. */
static enum kvw_err parse_address(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	union kvw_value value;
	enum kvw_err err;

	if (text.len == 0)
		return copy_text(text, out);
	err = parse_as(&kvw_type_ADDRESS, text, &value, fault);
	if (err == KVW_OK)
		out->text = value.text;
	return err;
}

static enum kvw_err parse_segment(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	snprintf(fault->expected, sizeof(fault->expected),
		"a name of letters, digits, '-', '_' and '.', at most %d of them", SHM_NAME_MOST);
	return is_segment_name(text) ? copy_text(text, out) : KVW_EINVAL;
}

/* A host's name or address; "*" stands for all of this machine's. */
static enum kvw_err parse_host(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	(void)fault;
	if (text.len > HOST_MOST)
		return KVW_EINVAL;
	for (size_t i = 0; i < text.len; i++)
		if (!is_name_character(text.data[i]) && text.data[i] != ':' &&
			!(text.data[i] == '*' && text.len == 1))
			return KVW_EINVAL;
	return copy_text(text, out);
}

/* Ports with commas between them. */
static enum kvw_err parse_ports(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	uint32_t port = 0, digits = 0;

	(void)fault;
	if (text.len > TEXT_MOST)
		return KVW_EINVAL;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if (c == ' ' && digits == 0)
			continue;
		if (c >= '0' && c <= '9' && digits < 5) {
			port = port * 10 + (uint32_t)(c - '0');
			digits++;
			continue;
		}
		if (c != ',' || port == 0 || port > UINT16_MAX)
			return KVW_EINVAL;
		port = digits = 0;
	}
	if (text.len > 0 && (port == 0 || port > UINT16_MAX))
		return KVW_EINVAL;
	return copy_text(text, out);
}

static enum kvw_err parse_hash(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	static const char *const words[] = {
		"sha256_cbor", "sha256_cbor_64bit", "sha256", "xxhash_cbor", "xxhash", NULL};

	return choose(text, "builtin", words, fault) ? copy_text(text, out) : KVW_EINVAL;
}

/* 64 bits as Python prints them: with a sign, or without. Copied, so that the text ends there. */
static enum kvw_err parse_hash_number(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	char digits[24];
	char *end = digits;

	(void)fault;
	if (text.len >= sizeof(digits))
		return KVW_EINVAL;
	memcpy(digits, text.data, text.len);
	digits[text.len] = '\0';
	for (size_t i = digits[0] == '-'; i < text.len; i++)
		if (digits[i] < '0' || digits[i] > '9')
			return KVW_EINVAL;
	errno = 0;
	if (digits[0] == '-')
		(void)strtoll(digits, &end, 10);
	else
		(void)strtoull(digits, &end, 10);
	if (errno != 0 || end != digits + text.len)
		return KVW_EINVAL;
	return copy_text(text, out);
}

static const char *const level_words[] = {"info", "warn", "error", NULL};

static enum kvw_err parse_level(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	if (!choose(text, "debug", level_words, fault))
		return KVW_EINVAL;
	out->word = KVT_LOG_DEBUG;
	for (uint32_t i = 0; level_words[i] != NULL; i++)
		if (kvw_slice_equal(text, kvw_slice_of(level_words[i])))
			out->word = KVT_LOG_INFO + i;
	return KVW_OK;
}

static void print_access(const union kvt_setting_value *value, char *out, size_t room)
{
	snprintf(out, room, "%s",
		value->word == 0666 ? "all" : (value->word == 0660 ? "group" : "owner"));
}

static void print_level(const union kvt_setting_value *value, char *out, size_t room)
{
	snprintf(out, room, "%s",
		value->word >= KVT_LOG_INFO && value->word <= KVT_LOG_ERROR
			? level_words[value->word - KVT_LOG_INFO]
			: "debug");
}

/* --- fingerprints ----------------------------------------------------------------------------- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static enum kvw_err parse_fingerprint(
	struct kvw_slice text, union kvt_setting_value *out, struct kvw_fault *fault)
{
	struct kvt_fingerprint fingerprint;

	(void)fault;
	if (text.len != HEX_DIGITS_KEY)
		return KVW_EINVAL;
	for (size_t i = 0; i < sizeof(fingerprint.bytes); i++) {
		int high = hex_value(text.data[2 * i]), low = hex_value(text.data[2 * i + 1]);

		if (high < 0 || low < 0)
			return KVW_EINVAL;
		fingerprint.bytes[i] = (uint8_t)(high * 16 + low);
	}
	out->fingerprint = fingerprint;
	return KVW_OK;
}

static void print_fingerprint(const union kvt_setting_value *value, char *out, size_t room)
{
	size_t used = 0;

	out[used++] = '"'; /* digits alone would be a number to other readers of YAML */
	for (size_t i = 0; i < sizeof(value->fingerprint.bytes) && used + 4 < room; i++)
		used += (size_t)snprintf(
			out + used, room - used, "%02x", value->fingerprint.bytes[i]);
	out[used++] = '"';
	out[used] = '\0';
}

/* --- the types -------------------------------------------------------------------------------- */

#define NUMBER_TYPE(type, words, says, member, is_auto, parser, comparer, printer)                 \
	const struct kvt_setting_type kvt_setting_##type = {                                       \
		.name = (words),                                                                   \
		.expected = (says),                                                                \
		.bytes = sizeof(((union kvt_setting_value *)NULL)->member),                        \
		.automatic = (is_auto),                                                            \
		.parse = (parser),                                                                 \
		.compare = (comparer),                                                             \
		.print = (printer),                                                                \
	}
#define TEXT_TYPE(type, words, says, parser)                                                       \
	const struct kvt_setting_type kvt_setting_##type = {                                       \
		.name = (words),                                                                   \
		.expected = (says),                                                                \
		.bytes = sizeof(char *),                                                           \
		.text = true,                                                                      \
		.parse = (parser),                                                                 \
		.print = print_text,                                                               \
	}

NUMBER_TYPE(SIZE, "size", "a size such as 64MiB (KiB, MiB, GiB, TiB or plain bytes)", size, false,
	parse_size, compare_sizes, print_size);
NUMBER_TYPE(AUTO_SIZE, "size or `auto`",
	"auto, or a size such as 64MiB (KiB, MiB, GiB, TiB or plain bytes)", size, true,
	parse_auto_size, compare_sizes, print_auto_size);
NUMBER_TYPE(COUNT, "whole number", "a whole number", word, false, parse_count, compare_words,
	print_count);
NUMBER_TYPE(AUTO_COUNT, "whole number or `auto`", "auto, or a whole number", word, true,
	parse_auto_count, compare_words, print_auto_count);
NUMBER_TYPE(
	NODE, "whole number", "a whole number", node, false, parse_node, compare_nodes, print_node);
NUMBER_TYPE(FLAG, "truth value", "true or false", word, false, parse_flag, NULL, print_flag);
NUMBER_TYPE(TIME, "duration", "a duration such as 250ms, 2s, 10m or 1h", size, false, parse_time,
	compare_sizes, print_time);
NUMBER_TYPE(NUMBER, "number", "a number such as 0.25", number, false, parse_number, compare_numbers,
	print_number);
NUMBER_TYPE(THREADS, "`own` or `caller`", NULL, word, false, parse_threads, NULL, print_threads);
NUMBER_TYPE(LEVEL, "`debug`, `info`, `warn` or `error`", NULL, word, false, parse_level, NULL,
	print_level);
NUMBER_TYPE(
	ACCESS, "`owner`, `group` or `all`", NULL, word, false, parse_access, NULL, print_access);
NUMBER_TYPE(FINGERPRINT, "64 hex digits", "64 hex digits", fingerprint, false, parse_fingerprint,
	NULL, print_fingerprint);

TEXT_TYPE(TEXT, "text", "text without control characters", parse_text);
TEXT_TYPE(PATH, "path", "a path without control characters", parse_text);
TEXT_TYPE(BACKING, "`anon`, `hugetlb` or `shm:NAME`", NULL, parse_backing);
TEXT_TYPE(POLICY, "policy", NULL, parse_policy);
TEXT_TYPE(IO_MODE, "`auto`, `uring` or `threads`", NULL, parse_io_mode);
TEXT_TYPE(L2_URL, "URL", NULL, parse_l2_url);
TEXT_TYPE(L2_FORMAT, "`native` or `lmcache`", NULL, parse_l2_format);
TEXT_TYPE(ENDPOINT, "ZeroMQ address", "tcp://HOST:PORT or ipc://PATH, such as tcp://127.0.0.1:5557",
	parse_endpoint);
TEXT_TYPE(ADDRESS, "HOST:PORT", NULL, parse_address);
TEXT_TYPE(SEGMENT, "name", NULL, parse_segment);
TEXT_TYPE(HOST, "host", "a host's name or address without a port, or *", parse_host);
TEXT_TYPE(PORTS, "ports", "ports such as 9500,9501", parse_ports);
TEXT_TYPE(HASH, "`builtin`, `sha256_cbor`, `sha256`, `xxhash_cbor` or `xxhash`", NULL, parse_hash);
TEXT_TYPE(HASH_NUMBER, "64-bit number", "a whole number of 64 bits such as 5313149338359954478",
	parse_hash_number);
