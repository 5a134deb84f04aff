/*
 * second_look.c - llhttp parses a head that kvway's own check has accepted.
 *
 * Two independent parsers have to agree: a head is good if llhttp accepts it, too, ends it at the
 * same byte, and finds the same version, method or status, and framing. llhttp runs with one
 * callback, which stops it after the empty line, and costs about a nanosecond per byte, less than
 * half of that with SSE 4.2. llhttp does not know here that a request was HEAD: framing is compared
 * as far as the two framing fields decide it.
 *
 * The verdict depends on the bytes alone, so a head equal to an accepted one is accepted without
 * llhttp. Only the digits of Content-Length may differ: kvway's own check allows 18 of them at
 * most, and llhttp accepts any number of that length. A table of a few heads is enough, since
 * clients and workers of one kind send equal heads.
 */
#include <llhttp.h>
#include <stdlib.h>
#include <string.h>

#include "http/head_internal.h"

bool kvw_method_known(struct kvw_slice method)
{
	static const struct kvw_slice known[] = {
#define METHOD(number, name, string) {#string, sizeof(#string) - 1},
		HTTP_METHOD_MAP(METHOD)
#undef METHOD
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (kvw_slice_equal(method, known[i]))
			return true;
	}
	return false;
}

static int stop_behind_head(llhttp_t *parser)
{
	(void)parser;
	return HPE_PAUSED;
}

/* Compares the framing by the fields alone, without the rules of RFC 9112 section 6.3 about HEAD
 * and statuses.
 */
static bool same_framing(const struct kvw_head *head, const llhttp_t *parser)
{
	bool chunked = head->first[KVW_FIELD_TRANSFER_ENCODING] >= 0;
	bool length = head->first[KVW_FIELD_CONTENT_LENGTH] >= 0;

	if (chunked != ((parser->flags & F_CHUNKED) != 0))
		return false;
	if (length != ((parser->flags & F_CONTENT_LENGTH) != 0))
		return false;
	return !length || parser->content_length == head->content_length;
}

#define PASSED_HEADS  16   /* a power of two */
#define PASSED_BYTES  1000 /* longer heads are not remembered: llhttp parses them every time */

/* A head that llhttp has accepted, without the digits of Content-Length. */
struct kvw_passed {
	/* number of bytes before the digits, and after them; 0 and 0: the entry is empty */
	uint16_t before, behind;
	bool response, close; /* close: llhttp found that the connection ends after this message */
	char bytes[PASSED_BYTES];
};

struct kvw_passed *kvw_passed_create(void)
{
	return calloc(PASSED_HEADS, sizeof(struct kvw_passed));
}

void kvw_passed_destroy(struct kvw_passed *passed)
{
	if (passed != NULL)
		explicit_bzero(passed, PASSED_HEADS * sizeof(*passed));
	free(passed);
}

/* A head in the form in which the table has its entries. */
struct key {
	const char *before, *behind;
	size_t before_len, behind_len;
	bool response;
};

/* Makes the key of a head. Returns false if such a head is not remembered. */
static bool key_of(const struct kvw_head *head, bool response, struct key *key)
{
	const struct kvw_field *length = kvw_head_field(head, KVW_FIELD_CONTENT_LENGTH);

	*key = (struct key){.before = head->data, .before_len = head->len, .response = response};
	key->behind = head->data + head->len;
	if (length != NULL) {
		key->before_len = (size_t)(length->value.data - head->data);
		key->behind = length->value.data + length->value.len;
		key->behind_len = head->len - key->before_len - length->value.len;
	}
	return key->before_len >= 16 && key->before_len + key->behind_len <= PASSED_BYTES;
}

static uint64_t word_at(const char *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* Returns the only place in the table that may have this head. */
static struct kvw_passed *place_of(const struct kvw_head *head, const struct key *key)
{
	uint64_t hash = key->before_len << 16 ^ key->behind_len << 1 ^ (uint64_t)key->response;

	hash ^= word_at(key->before + 8) ^ word_at(key->before + key->before_len / 2) ^
		word_at(key->before + key->before_len - 8);
	hash *= UINT64_C(0x9E3779B97F4A7C15);
	return &head->passed[hash >> 32 & (PASSED_HEADS - 1)];
}

static bool is_same(const struct kvw_passed *passed, const struct key *key)
{
	return passed->before == key->before_len && passed->behind == key->behind_len &&
	       passed->response == key->response &&
	       memcmp(passed->bytes, key->before, key->before_len) == 0 &&
	       memcmp(passed->bytes + key->before_len, key->behind, key->behind_len) == 0;
}

static void keep_key(struct kvw_passed *passed, const struct key *key, bool close)
{
	passed->before = (uint16_t)key->before_len;
	passed->behind = (uint16_t)key->behind_len;
	passed->response = key->response;
	passed->close = close;
	memcpy(passed->bytes, key->before, key->before_len);
	memcpy(passed->bytes + key->before_len, key->behind, key->behind_len);
}

/* Asks llhttp whether it accepts the head. *close: llhttp finds that the connection ends after this
 * message. */
static bool ask_llhttp(
	const struct kvw_head *head, bool response, bool *close, struct kvw_head_error *error)
{
	static const llhttp_settings_t settings = {.on_headers_complete = stop_behind_head};
	int status = response ? 502 : 400;
	llhttp_t parser;
	llhttp_errno_t result;

	llhttp_init(&parser, response ? HTTP_RESPONSE : HTTP_REQUEST, &settings);
	result = llhttp_execute(&parser, head->data, head->len);
	if (result != HPE_PAUSED) {
		const char *reason = llhttp_get_error_reason(&parser); /* a literal of llhttp */

		return kvw_refuse(error, status,
			result != HPE_OK && reason != NULL ? reason
							   : "message head is not complete");
	}
	if (llhttp_get_error_pos(&parser) != head->data + head->len)
		return kvw_refuse(error, status, "message head has two ends");
	if (parser.http_major != 1 || parser.http_minor != head->minor ||
		(response && parser.status_code != head->status))
		return kvw_refuse(error, status, "start line can be read in two ways");
	if (!same_framing(head, &parser))
		return kvw_refuse(error, status, "message length can be read in two ways");
	*close = (parser.flags & F_CONNECTION_CLOSE) != 0;
	return true;
}

bool kvw_second_look(struct kvw_head *head, bool response, struct kvw_head_error *error)
{
	struct key key = {0};
	bool kept = head->passed != NULL && key_of(head, response, &key), close;
	struct kvw_passed *passed = kept ? place_of(head, &key) : NULL;

	if (passed != NULL && is_same(passed, &key)) {
		close = passed->close;
	} else {
		if (!ask_llhttp(head, response, &close, error))
			return false;
		if (passed != NULL)
			keep_key(passed, &key, close);
	}
	/* llhttp reads Connection in its own way, and Proxy-Connection, too; if it finds "close"
	 * there, the connection is closed. */
	if (close)
		head->keep_alive = false;
	return true;
}
