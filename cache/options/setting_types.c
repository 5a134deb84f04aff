/*
 * setting_types.c - the types that only settings of the cache and its daemon have: words, backings,
 * URLs of shared tiers, ZeroMQ addresses, fingerprints. Numbers are in src/common/settings.
 */
#include <errno.h>
#include <stdlib.h>

#include <openssl/crypto.h>

#include "chunk/l2_url.h"
#include "options/setting.h"

#define TEXT_MOST      2048 /* bytes of a text */
#define SHM_NAME_MOST  200
#define HEX_DIGITS_KEY 64
#define HOST_MOST      255

/* --- texts ------------------------------------------------------------------------------------ */

/* Returns whether a character is in C0, DEL or C1, is one that YAML takes for the end of a line, or
 * is the byte order mark. */
static bool is_control(const unsigned char *c)
{
	return c[0] < 0x20 || c[0] == 0x7F || (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) ||
	       (c[0] == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9)) ||
	       (c[0] == 0xEF && c[1] == 0xBB && c[2] == 0xBF);
}

static enum kvw_err parse_text(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)names, (void)fault;
	for (size_t i = 0; i < text.len; i++)
		if (is_control((const unsigned char *)text.data + i)) /* a NUL would end the text */
			return KVW_EINVAL;
	return text.len > TEXT_MOST ? KVW_EINVAL : kvw_text_copy(text, out);
}

static bool is_name_character(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

/* Checks the text after "shm:". "." and ".." are refused, since the name becomes a file of
 * /dev/shm. */
static bool is_segment_name(struct kvw_slice name)
{
	if (name.len == 0 || name.len > SHM_NAME_MOST || name.data[0] == '.')
		return false;
	for (size_t i = 0; i < name.len; i++)
		if (!is_name_character(name.data[i]))
			return false;
	return true;
}

static enum kvw_err parse_backing(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	if (text.len > 4 && memcmp(text.data, "shm:", 4) == 0) {
		snprintf(fault->expected, sizeof(fault->expected),
			"shm: and a name of letters, digits, '-', '_' and '.', at most %d of them",
			SHM_NAME_MOST);
		if (!is_segment_name((struct kvw_slice){text.data + 4, text.len - 4}))
			return KVW_EINVAL;
		return kvw_text_copy(text, out);
	}
	/* allowed for programs, not in files */
	if (text.len > 3 && memcmp(text.data, "fd:", 3) == 0) {
		for (size_t i = 3; i < text.len; i++)
			if (text.data[i] < '0' || text.data[i] > '9' || text.len > 12)
				return KVW_EINVAL;
		return kvw_text_copy(text, out);
	}
	return kvw_word_parse(type, text, names, out, fault);
}

/* Checks for tcp://HOST:PORT or ipc:///PATH. */
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

static enum kvw_err parse_endpoint(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	char repaired[128];
	int n;

	(void)type, (void)names;
	if (text.len <= TEXT_MOST && (text.len == 0 || is_endpoint(text)))
		return kvw_text_copy(text, out);
	n = snprintf(repaired, sizeof(repaired), "tcp://%.*s",
		(int)(text.len < 120 ? text.len : 120), text.data);
	if (n > 0 && (size_t)n < sizeof(repaired) && memchr(text.data, '/', text.len) == NULL &&
		is_endpoint(kvw_slice_of(repaired)))
		kvw_fault_suggest(fault, "%s", repaired);
	return KVW_EINVAL;
}

static enum kvw_err parse_l2_url(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	struct kvt_l2_url url;
	const char *expected = NULL;
	enum kvw_err err = parse_text(type, text, names, out, fault);

	if (err != KVW_OK || text.len == 0)
		return err;
	expected = kvt_l2_url_parse(out->text, &url);
	OPENSSL_cleanse(&url, sizeof(url)); /* since the URL may contain a password */
	if (expected == NULL)
		return KVW_OK;
	free(out->text);
	snprintf(fault->expected, sizeof(fault->expected), "%s", expected);
	if (memchr(text.data, '@', text.len) != NULL)
		fault->found = "a URL with a login";
	return KVW_EINVAL;
}

/* --- types of programs ------------------------------------------------------------------------ */

/* Parses HOST:PORT, or nothing. */
static enum kvw_err parse_address(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type;
	return text.len == 0 ? kvw_text_copy(text, out)
			     : kvw_type_ADDRESS.parse(&kvw_type_ADDRESS, text, names, out, fault);
}

static enum kvw_err parse_segment(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)names;
	snprintf(fault->expected, sizeof(fault->expected),
		"a name of letters, digits, '-', '_' and '.', at most %d of them", SHM_NAME_MOST);
	return is_segment_name(text) ? kvw_text_copy(text, out) : KVW_EINVAL;
}

/* Parses a host's name or address; "*" stands for all addresses of this machine. */
static enum kvw_err parse_host(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)names, (void)fault;
	if (text.len > HOST_MOST)
		return KVW_EINVAL;
	for (size_t i = 0; i < text.len; i++)
		if (!is_name_character(text.data[i]) && text.data[i] != ':' &&
			!(text.data[i] == '*' && text.len == 1))
			return KVW_EINVAL;
	return kvw_text_copy(text, out);
}

/* Parses ports separated by commas. */
static enum kvw_err parse_ports(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	uint32_t port = 0, digits = 0;

	(void)type, (void)names, (void)fault;
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
	return kvw_text_copy(text, out);
}

/* Parses a 64-bit number as Python prints it, with or without a sign. Copies the text, so that it
 * ends there. */
static enum kvw_err parse_hash_number(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	char digits[24];
	char *end = digits;

	(void)type, (void)names, (void)fault;
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
	return kvw_text_copy(text, out);
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

static enum kvw_err parse_fingerprint(const struct kvw_type *type, struct kvw_slice text,
	const char *const *names, union kvw_value *out, struct kvw_fault *fault)
{
	struct kvt_fingerprint fingerprint;

	_Static_assert(sizeof(fingerprint) <= sizeof(out->bytes), "it fits into a value");
	(void)type, (void)names, (void)fault;
	if (text.len != HEX_DIGITS_KEY)
		return KVW_EINVAL;
	for (size_t i = 0; i < sizeof(fingerprint.bytes); i++) {
		int high = hex_value(text.data[2 * i]), low = hex_value(text.data[2 * i + 1]);

		if (high < 0 || low < 0)
			return KVW_EINVAL;
		fingerprint.bytes[i] = (uint8_t)(high * 16 + low);
	}
	memcpy(out->bytes, fingerprint.bytes, sizeof(fingerprint));
	return KVW_OK;
}

static void print_fingerprint(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	size_t used = 0;

	/* in quotes, since digits alone would be a number to other readers of YAML */
	out[used++] = '"';
	for (size_t i = 0; i < type->size && used + 4 < room; i++)
		used += (size_t)snprintf(out + used, room - used, "%02x", value->bytes[i]);
	out[used++] = '"';
	out[used] = '\0';
}

const struct kvw_type kvt_setting_FINGERPRINT = {
	.name = "64 hex digits",
	.expected = "64 hex digits",
	.usual = "64 zeros",
	.size = sizeof(struct kvt_fingerprint),
	.parse = parse_fingerprint,
	.print = print_fingerprint,
};

/* --- the types -------------------------------------------------------------------------------- */

#define WORDS(...)                                                                                 \
	.words = (const struct kvw_word[])                                                         \
	{                                                                                          \
		__VA_ARGS__,                                                                       \
		{                                                                                  \
			NULL, 0                                                                    \
		}                                                                                  \
	}

#define ENUM_TYPE(type, says, ...)                                                                 \
	const struct kvw_type kvt_setting_##type = {                                               \
		.name = (says),                                                                    \
		.size = sizeof(uint32_t),                                                          \
		.parse = kvw_word_parse,                                                           \
		.print = kvw_word_print,                                                           \
		WORDS(__VA_ARGS__),                                                                \
	}
#define TEXT_TYPE(type, kind, says, parser, ...)                                                   \
	const struct kvw_type kvt_setting_##type = {.name = (kind),                                \
		.expected = (says),                                                                \
		.size = sizeof(char *),                                                            \
		.owned = true,                                                                     \
		.parse = (parser),                                                                 \
		.print = kvw_text_print,                                                           \
		__VA_ARGS__}

ENUM_TYPE(THREADS, "`own` or `caller`", {"own", KVT_THREADS_OWN}, {"caller", KVT_THREADS_CALLER});
ENUM_TYPE(LEVEL, "`debug`, `info`, `warn` or `error`", {"debug", KVT_LOG_DEBUG},
	{"info", KVT_LOG_INFO}, {"warn", KVT_LOG_WARN}, {"error", KVT_LOG_ERROR});
/* Access to a file, as a mode. */
ENUM_TYPE(ACCESS, "`owner`, `group` or `all`", {"owner", 0600}, {"group", 0660}, {"all", 0666});

TEXT_TYPE(TEXT, "text", "text without control characters", parse_text, );
TEXT_TYPE(PATH, "path", "a path without control characters", parse_text, );
TEXT_TYPE(BACKING, "`anon`, `hugetlb` or `shm:NAME`", NULL, parse_backing,
	WORDS({"anon", 0}, {"hugetlb", 0}, {"shm:NAME", 0}));
TEXT_TYPE(IO_MODE, "`auto`, `uring` or `threads`", NULL, kvw_word_parse,
	WORDS({"auto", 0}, {"uring", 0}, {"threads", 0}));
TEXT_TYPE(L2_URL, "URL", NULL, parse_l2_url, );
TEXT_TYPE(NODE_SHARE, "`never`, `auto` or `always`", NULL, kvw_word_parse,
	WORDS({"never", 0}, {"auto", 0}, {"always", 0}));
TEXT_TYPE(CUT, "`separator` or `content`", NULL, kvw_word_parse,
	WORDS({"separator", 0}, {"content", 0}));
TEXT_TYPE(ENDPOINT, "ZeroMQ address", "tcp://HOST:PORT or ipc://PATH, such as tcp://127.0.0.1:5557",
	parse_endpoint, );
TEXT_TYPE(ADDRESS, "HOST:PORT", NULL, parse_address, );
TEXT_TYPE(SEGMENT, "name", NULL, parse_segment, );
TEXT_TYPE(HOST, "host", "a host's name or address without a port, or *", parse_host, );
TEXT_TYPE(PORTS, "ports", "ports such as 9500,9501", parse_ports, );
TEXT_TYPE(HASH, "`builtin`, `sha256_cbor`, `sha256`, `xxhash_cbor` or `xxhash`", NULL,
	kvw_word_parse,
	WORDS({"builtin", 0}, {"sha256_cbor", 0}, {"sha256_cbor_64bit", 0}, {"sha256", 0},
		{"xxhash_cbor", 0}, {"xxhash", 0}));
TEXT_TYPE(HASH_NUMBER, "64-bit number", "a whole number of 64 bits such as 5313149338359954478",
	parse_hash_number, );

#define KVT_POLICY(name) {#name, 0},
#define KVT_DEFAULT_POLICY(name)
static const struct kvw_word policies[] = {
	{"default", 0},
#include "policies/policies.def"
	{NULL, 0},
};
TEXT_TYPE(POLICY, "policy", NULL, kvw_word_parse, .words = policies);
