/*
 * request.c - see request.h.
 */
#include "feeds/coordinator/request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/coordinator/pages.h"
#include "http/chars.h"

/* --- answers ---------------------------------------------------------------------------------- */

void kvw_cr_answer(struct kvw_conn *conn, int status, const char *type, const char *extra,
	const struct kvw_page *page)
{
	if (page->failed) {
		kvw_conn_answer(conn, &(struct kvw_http_answer){.status = 503,
					      .type = "application/json",
					      .body = KVW_SLICE("{\"detail\":\"out of memory\"}")});
		return;
	}
	kvw_conn_answer(conn, &(struct kvw_http_answer){.status = status,
				      .type = type,
				      .body = {page->data, page->len},
				      .extra = kvw_slice_of(extra)});
}

void kvw_cr_answer_take(struct kvw_conn *conn, int status, struct kvw_page *page)
{
	kvw_cr_answer(conn, status, "application/json", "", page);
	free(page->data);
}

void kvw_coordinator_error(struct kvw_conn *conn, struct kvw_coordinator *coordinator, int status,
	const char *extra, const char *message)
{
	struct kvw_page page = {0};

	coordinator->refused++;
	kvw_page_string(&page, "{\"detail\":");
	kvw_page_json(&page, kvw_slice_of(message));
	kvw_page_string(&page, "}");
	kvw_cr_answer(conn, status, "application/json", extra, &page);
	free(page.data);
}

void kvw_cr_answer_keys_take(
	struct kvw_conn *conn, struct kvw_coordinator *coordinator, struct kvw_page *page)
{
	if (page->len <= KVW_CD_PAGE_MOST) {
		kvw_cr_answer_take(conn, 200, page);
		return;
	}
	free(page->data);
	kvw_coordinator_error(conn, coordinator, 413, "",
		"the answer would have more than 64 MiB: ask for fewer keys at once");
}

void kvw_cr_refuse_value(struct kvw_conn *conn, struct kvw_coordinator *coordinator,
	const char *place, const char *name, const char *message)
{
	struct kvw_page page = {0};

	coordinator->refused++;
	kvw_page_string(&page, "{\"detail\":[{\"type\":\"value_error\",\"loc\":[\"");
	kvw_page_string(&page, place);
	kvw_page_string(&page, "\"");
	if (name != NULL) {
		kvw_page_string(&page, ",");
		kvw_page_json(&page, kvw_slice_of(name));
	}
	kvw_page_string(&page, "],\"msg\":");
	kvw_page_json(&page, kvw_slice_of(message));
	kvw_page_string(&page, "}]}");
	kvw_cr_answer_take(conn, 422, &page);
}

bool kvw_cr_only_method(
	struct kvw_conn *conn, struct kvw_coordinator *coordinator, const char *allowed)
{
	struct kvw_slice method = conn->clients->head.method;
	const char *found;
	char extra[64];

	for (found = allowed; *found != '\0'; found += strspn(found, ", ")) {
		size_t len = strcspn(found, ",");

		if (kvw_slice_equal(method, (struct kvw_slice){found, len}))
			return true;
		found += len;
	}
	(void)snprintf(extra, sizeof(extra), "Allow: %s\r\n", allowed);
	kvw_coordinator_error(conn, coordinator, 405, extra, "Method Not Allowed");
	return false;
}

/* --- requests' parts -------------------------------------------------------------------------- */

bool kvw_cr_decode(struct kvw_slice coded, bool plus, char *text, size_t room, size_t *len)
{
	*len = 0;
	for (size_t i = 0; i < coded.len; i++) {
		char c = coded.data[i];

		if (*len + 1 >= room)
			return false;
		if (c == '%') {
			if (coded.len - i < 3 || !kvw_char_is(coded.data[i + 1], KVW_CHAR_HEX) ||
				!kvw_char_is(coded.data[i + 2], KVW_CHAR_HEX))
				return false;
			c = (char)(kvw_char_hex(coded.data[i + 1]) << 4 |
				   kvw_char_hex(coded.data[i + 2]));
			i += 2;
			if (c == '\0')
				return false;
		} else if (plus && c == '+') {
			c = ' ';
		}
		text[(*len)++] = c;
	}
	text[*len] = '\0';
	return true;
}

bool kvw_cr_is_method(const struct kvw_conn *conn, const char *method)
{
	return kvw_slice_equal(conn->clients->head.method, kvw_slice_of(method));
}

struct kvw_slice kvw_cr_path(const struct kvw_head *head)
{
	const char *mark = memchr(head->target.data, '?', head->target.len);

	return (struct kvw_slice){head->target.data,
		mark == NULL ? head->target.len : (size_t)(mark - head->target.data)};
}

bool kvw_cr_parameter(const struct kvw_head *head, const char *name, char *text, size_t room)
{
	struct kvw_slice path = kvw_cr_path(head), wanted = kvw_slice_of(name);
	const char *at = path.data + path.len + 1, *end = head->target.data + head->target.len;
	size_t len;

	text[0] = '\0';
	while (at < end) {
		const char *stop = memchr(at, '&', (size_t)(end - at)), *sign;

		stop = stop == NULL ? end : stop;
		sign = memchr(at, '=', (size_t)(stop - at));
		if (sign != NULL &&
			kvw_slice_equal(wanted, (struct kvw_slice){at, (size_t)(sign - at)}))
			return kvw_cr_decode(
				(struct kvw_slice){sign + 1, (size_t)(stop - sign - 1)}, true, text,
				room, &len);
		at = stop + 1;
	}
	return true;
}

bool kvw_cr_number(struct kvw_conn *conn, struct kvw_coordinator *coordinator, const char *name,
	uint64_t least, uint64_t most, uint64_t *value)
{
	char text[24], message[80], *stop;

	if (!kvw_cr_parameter(&conn->clients->head, name, text, sizeof(text)))
		text[0] = '?';
	else if (text[0] == '\0')
		return true;
	errno = 0;
	if (text[0] >= '0' && text[0] <= '9') {
		uint64_t number = strtoull(text, &stop, 10);

		if (errno == 0 && *stop == '\0' && number >= least && number <= most) {
			*value = number;
			return true;
		}
	}
	(void)snprintf(message, sizeof(message), "Input should be from %" PRIu64 " to %" PRIu64,
		least, most);
	kvw_cr_refuse_value(conn, coordinator, "query", name, message);
	return false;
}

json_t *kvw_cr_body(struct kvw_conn *conn, struct kvw_coordinator *coordinator, size_t most)
{
	char message[64];
	struct kvw_slice body = kvw_conn_body(conn);
	json_error_t error;
	json_t *object;

	if (body.len > most) {
		(void)snprintf(message, sizeof(message), "the body is above %zu MiB", most >> 20);
		kvw_coordinator_error(conn, coordinator, 413, "", message);
		return NULL;
	}
	object = json_loadb(body.data == NULL ? "" : body.data, body.len, 0, &error);
	if (json_is_object(object))
		return object;
	json_decref(object);
	kvw_cr_refuse_value(conn, coordinator, "body", NULL, "the body is no JSON object");
	return NULL;
}

bool kvw_cr_read_key(const json_t *item, char hash[KVW_CE_HASH_MOST], struct kvw_ce_key *key)
{
	const json_t *digits = json_object_get(item, "chunk_hash_hex");
	const json_t *model = json_object_get(item, "model_name");
	const json_t *salt = json_object_get(item, "cache_salt");
	const json_t *rank = json_object_get(item, "kv_rank");
	const json_t *group = json_object_get(item, "object_group_id");
	size_t len = json_string_length(digits);

	if (!json_is_string(digits) || !json_is_string(model) || !json_is_integer(rank) ||
		(salt != NULL && !json_is_string(salt)) ||
		(group != NULL && !json_is_integer(group)) || len % 2 != 0 ||
		len > 2 * KVW_CE_HASH_MOST || json_integer_value(rank) < 0 ||
		json_integer_value(rank) > UINT32_MAX || json_integer_value(group) < 0 ||
		json_integer_value(group) > UINT32_MAX)
		return false;
	for (size_t i = 0; i < len; i += 2) {
		const char *at = json_string_value(digits) + i;

		if (!kvw_char_is(at[0], KVW_CHAR_HEX) || !kvw_char_is(at[1], KVW_CHAR_HEX))
			return false;
		hash[i / 2] = (char)(kvw_char_hex(at[0]) << 4 | kvw_char_hex(at[1]));
	}
	*key = (struct kvw_ce_key){.hash = {hash, len / 2},
		.model = {json_string_value(model), json_string_length(model)},
		.salt = {salt == NULL ? "" : json_string_value(salt),
			salt == NULL ? 0 : json_string_length(salt)},
		.rank = (uint32_t)json_integer_value(rank),
		.group = (uint32_t)json_integer_value(group)};
	return key->model.len <= KVW_CE_MODEL_MOST && key->salt.len <= KVW_CE_SALT_MOST;
}
