/*
 * types_text.c - converts names, addresses, URLs, and words out of a list.
 *
 * Accepted texts may be written into HTTP heads, logs and metric labels, so control characters are
 * refused; and secrets, which are sent in a header, may contain visible ASCII only.
 */
#include "settings/types.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings/address.h"
#include "settings/suggest.h"

#define TEXT_MAX 4096 /* most bytes of any value */

void kvw_fault_suggest(struct kvw_fault *fault, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(fault->suggestion, sizeof(fault->suggestion), format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(fault->suggestion))
		fault->suggestion[0] = '\0';
}

static void expect(struct kvw_fault *fault, const char *text)
{
	snprintf(fault->expected, sizeof(fault->expected), "%s", text);
}

enum kvw_err kvw_text_copy(struct kvw_slice text, union kvw_value *out)
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

static bool has_control(struct kvw_slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if ((unsigned char)text.data[i] < 0x20 || text.data[i] == 0x7F)
			return true;
	return false;
}

static bool is_visible_ascii(struct kvw_slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] <= 0x20 || text.data[i] >= 0x7F)
			return false;
	return true;
}

static enum kvw_err parse_string(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)strategies, (void)fault;
	if (has_control(text) || text.len > TEXT_MAX)
		return KVW_EINVAL;
	return kvw_text_copy(text, out);
}

static enum kvw_err parse_secret(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)strategies, (void)fault;
	if (!is_visible_ascii(text) || text.len > TEXT_MAX)
		return KVW_EINVAL;
	return kvw_text_copy(text, out);
}

static enum kvw_err parse_path(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)strategies;
	if (text.len > 0 && text.len <= TEXT_MAX && is_visible_ascii(text) &&
		memchr(text.data, '#', text.len) == NULL) {
		if (text.data[0] == '/')
			return kvw_text_copy(text, out);
		if (memchr(text.data, ':', text.len) == NULL)
			kvw_fault_suggest(fault, "/%.*s", (int)text.len, text.data);
	}
	return KVW_EINVAL;
}

static enum kvw_err parse_token(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	(void)type, (void)strategies, (void)fault;
	if (text.len == 0 || text.len > 256 || !is_visible_ascii(text))
		return KVW_EINVAL;
	for (size_t i = 0; i < text.len; i++)
		if (strchr("\"(),/:;<=>?@[\\]{}", text.data[i]) != NULL)
			return KVW_EINVAL;
	return kvw_text_copy(text, out);
}

/* Suggests host and port, if together they are a valid address. */
static void suggest_address(struct kvw_fault *fault, const char *host, struct kvw_slice port)
{
	char text[128];
	struct kvw_address address;
	int n = snprintf(text, sizeof(text), "%s:%.*s", host, (int)port.len, port.data);

	if (n > 0 && (size_t)n < sizeof(text) &&
		kvw_address_split(kvw_slice_of(text), &address) == KVW_ADDRESS_OK)
		kvw_fault_suggest(fault, "%s", text);
}

static enum kvw_err parse_address(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	struct kvw_address address;
	struct kvw_slice port;

	(void)type, (void)strategies;
	switch (kvw_address_split(text, &address)) {
	case KVW_ADDRESS_OK:
		return kvw_text_copy(text, out);
	case KVW_ADDRESS_NO_PORT:
		expect(fault, "HOST:PORT such as 0.0.0.0:8080");
		suggest_address(fault, "0.0.0.0", text);
		break;
	case KVW_ADDRESS_BAD_PORT:
		expect(fault, "a port from 1 to 65535, such as 0.0.0.0:8080");
		break;
	case KVW_ADDRESS_BARE_V6:
		expect(fault, "HOST:PORT, an IPv6 address in brackets such as [::1]:8080");
		break;
	default:
		expect(fault, "HOST:PORT such as 0.0.0.0:8080 or [::1]:8080");
		/* ":8080" and "*:8080" */
		port = text.len > 0 && text.data[0] == '*'
			       ? (struct kvw_slice){text.data + 1, text.len - 1}
			       : text;
		if (port.len > 1 && port.data[0] == ':')
			suggest_address(
				fault, "0.0.0.0", (struct kvw_slice){port.data + 1, port.len - 1});
	}
	return KVW_EINVAL;
}

/* Stores a URL in one form, so that equal workers have equal URLs in every replica: host in lower
 * case, port always written, no slash at the end. */
static enum kvw_err copy_url(const struct kvw_url *url, union kvw_value *out)
{
	char *text = NULL;
	const char *open = url->address.v6 ? "[" : "", *close = url->address.v6 ? "]" : "";
	const char *scheme = url->tls ? "https://" : "http://";
	size_t size = url->address.host.len + url->prefix.len + sizeof("https://[]:65535");
	size_t begin = strlen(scheme) + strlen(open);

	text = malloc(size);
	if (text == NULL)
		return KVW_ENOMEM;
	snprintf(text, size, "%s%s%.*s%s:%u%.*s", scheme, open, (int)url->address.host.len,
		url->address.host.data, close, url->address.port, (int)url->prefix.len,
		url->prefix.len > 0 ? url->prefix.data : "");
	for (size_t i = begin; i < begin + url->address.host.len; i++)
		if (text[i] >= 'A' && text[i] <= 'Z')
			text[i] = (char)(text[i] - 'A' + 'a');
	out->text = text;
	return KVW_OK;
}

static void explain_url(enum kvw_address_fault why, struct kvw_slice text, struct kvw_fault *fault)
{
	static const char *const expected[] = {
		[KVW_ADDRESS_NO_HOST] = "a host, http://HOST:PORT",
		[KVW_ADDRESS_BAD_HOST] = "a host name or IP address, http://HOST:PORT",
		[KVW_ADDRESS_BAD_PORT] = "a port from 1 to 65535, http://HOST:PORT",
		[KVW_ADDRESS_BARE_V6] = "http://HOST:PORT, an IPv6 address in brackets such as "
					"http://[::1]:8000",
		[KVW_ADDRESS_BAD_SCHEME] = "the scheme http or https, http://HOST:PORT",
		[KVW_ADDRESS_USER] = "http://HOST:PORT without user and password: use api_key for "
				     "a worker's key",
		[KVW_ADDRESS_QUERY] = "http://HOST:PORT without '?' and '#'",
		[KVW_ADDRESS_BAD_PATH] = "http://HOST:PORT or a plain path after it, "
					 "http://HOST:PORT/PREFIX",
		[KVW_ADDRESS_API_PATH] = "http://HOST:PORT without /v1: a request brings its own "
					 "path",
	};
	struct kvw_url url;
	char repaired[128];
	int n;

	expect(fault, why < sizeof(expected) / sizeof(expected[0]) && expected[why] != NULL
			      ? expected[why]
			      : "http://HOST:PORT such as http://127.0.0.1:8000");
	if (why == KVW_ADDRESS_USER)
		fault->found = "a URL with a user or password";
	if (why != KVW_ADDRESS_NO_SCHEME && why != KVW_ADDRESS_API_PATH)
		return;
	if (why == KVW_ADDRESS_NO_SCHEME)
		n = snprintf(repaired, sizeof(repaired), "http://%.*s", (int)text.len, text.data);
	else {
		text.len -= text.data[text.len - 1] == '/';
		n = snprintf(repaired, sizeof(repaired), "%.*s", (int)text.len - 3, text.data);
	}
	if (n > 0 && (size_t)n < sizeof(repaired) &&
		kvw_url_split(kvw_slice_of(repaired), &url) == KVW_ADDRESS_OK)
		kvw_fault_suggest(fault, "%s", repaired);
}

static enum kvw_err parse_url(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	struct kvw_url url;
	enum kvw_address_fault why = KVW_ADDRESS_NO_SCHEME;

	(void)type, (void)strategies;
	if (text.len <= TEXT_MAX && !has_control(text))
		why = kvw_url_split(text, &url);
	if (why == KVW_ADDRESS_OK)
		return copy_url(&url, out);
	explain_url(why, text, fault);
	return KVW_EINVAL;
}

/* Adds a word to the text for "expected", and keeps it if it is the nearest so far. Returns true if
 * the word is `text`. */
static bool choose_word(
	struct kvw_slice text, const char *word, struct kvw_suggest *near, struct kvw_fault *fault)
{
	size_t used = strlen(fault->expected);

	snprintf(fault->expected + used, sizeof(fault->expected) - used, "%s%s",
		used == 0 ? "one of " : ", ", word);
	kvw_suggest_offer(near, word, word);
	return kvw_slice_equal(text, kvw_slice_of(word));
}

static enum kvw_err no_such_word(const struct kvw_suggest *near, struct kvw_fault *fault)
{
	if (near->best != NULL)
		kvw_fault_suggest(fault, "%s", near->best);
	return KVW_EINVAL;
}

enum kvw_err kvw_word_parse(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	struct kvw_suggest near;

	(void)strategies;
	kvw_suggest_start(&near, text.len > 0 ? text.data : "");
	for (const struct kvw_word *word = type->words; word->name != NULL; word++) {
		if (!choose_word(text, word->name, &near, fault))
			continue;
		if (type->owned)
			return kvw_text_copy(text, out);
		out->word = word->value;
		return KVW_OK;
	}
	return no_such_word(&near, fault);
}

static enum kvw_err parse_strategy(const struct kvw_type *type, struct kvw_slice text,
	const char *const *strategies, union kvw_value *out, struct kvw_fault *fault)
{
	struct kvw_suggest near;

	(void)type;
	kvw_suggest_start(&near, text.data);
	for (size_t i = 0; strategies[i] != NULL; i++)
		if (choose_word(text, strategies[i], &near, fault))
			return kvw_text_copy(text, out);
	return no_such_word(&near, fault);
}

/* A number for which there is no word is written as the last word. */
void kvw_word_print(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	const struct kvw_word *word = type->words;

	while (word->value != value->word && word[1].name != NULL)
		word++;
	snprintf(out, room, "%s", word->name);
}

static bool is_plain(const char *text)
{
	if (*text == '\0' || *text == '-' || *text == ':' || strcmp(text, "null") == 0)
		return false;
	for (; *text != '\0'; text++) {
		bool word = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
			    (*text >= '0' && *text <= '9') || strchr("._-/", *text) != NULL;

		if (!word && (*text != ':' || text[1] == '\0' || text[1] == ' '))
			return false;
	}
	return true;
}

/* Writes the escape of a character that YAML reads as a line's end or not at all, or that controls
 * a terminal. Returns the length of the character; 0: it needs no escape. */
static size_t escape(const unsigned char *c, char out[8])
{
	if (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) {
		snprintf(out, 8, "\\x%02X", c[1]);
		return 2;
	}
	if (c[0] == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9)) {
		snprintf(out, 8, "\\u20%02X", c[2] - 0x80);
		return 3;
	}
	if (c[0] == 0xEF && c[1] == 0xBB && c[2] == 0xBF) {
		snprintf(out, 8, "\\uFEFF");
		return 3;
	}
	return 0;
}

void kvw_text_print(
	const struct kvw_type *type, const union kvw_value *value, char *out, size_t room)
{
	size_t used = 0;

	(void)type;
	if (is_plain(value->text)) {
		snprintf(out, room, "%s", value->text);
		return;
	}
	out[used++] = '"';
	for (const char *c = value->text; *c != '\0' && used + 4 < room; c++) {
		char escaped[8];
		size_t bytes = escape((const unsigned char *)c, escaped);

		if (bytes > 0 && used + strlen(escaped) + 2 <= room) {
			memcpy(out + used, escaped, strlen(escaped));
			used += strlen(escaped);
			c += bytes - 1;
			continue;
		}
		if (*c == '"' || *c == '\\')
			out[used++] = '\\';
		out[used++] = *c;
	}
	out[used++] = '"';
	out[used] = '\0';
}

#define TEXT_TYPE(type, words, says, parser)                                                       \
	const struct kvw_type kvw_type_##type = {                                                  \
		.name = (words),                                                                   \
		.expected = (says),                                                                \
		.size = sizeof(char *),                                                            \
		.owned = true,                                                                     \
		.parse = (parser),                                                                 \
		.print = kvw_text_print,                                                           \
	}

TEXT_TYPE(STRING, "text", "text without control characters", parse_string);
TEXT_TYPE(ADDRESS, "address", NULL, parse_address);
const struct kvw_type kvw_type_URL = {
	.name = "URL",
	.size = sizeof(char *),
	.owned = true,
	.parse = parse_url,
	.print = kvw_text_print,
};
TEXT_TYPE(PATH, "path", "a path that begins with `/`", parse_path);
TEXT_TYPE(TOKEN, "name", "a name of letters, digits and -_.!#$%&'*+^`|~", parse_token);
TEXT_TYPE(STRATEGY, "strategy", NULL, parse_strategy);

const struct kvw_type kvw_type_SECRET = {
	.name = "secret",
	.expected = "visible ASCII characters without spaces",
	.size = sizeof(char *),
	.owned = true,
	.secret = true,
	.parse = parse_secret,
};

const struct kvw_type kvw_type_STRINGS = {
	.name = "list of text",
	.expected = "a list such as [one, two]",
	.item = &kvw_type_STRING,
	.size = sizeof(struct kvw_strings),
};

const struct kvw_type kvw_type_TOKENS = {
	.name = "list of names",
	.expected = "a list such as [one, two]",
	.item = &kvw_type_TOKEN,
	.size = sizeof(struct kvw_strings),
};
