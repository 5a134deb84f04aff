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

void kvw_coordinator_error(
	struct kvw_conn *conn, int status, const char *extra, const char *message)
{
	struct kvw_page page = {0};

	kvw_cr_of(conn)->refused++;
	kvw_cd_put(&page, "{'detail':%s}", message);
	kvw_cr_answer(conn, status, "application/json", extra, &page);
	free(page.data);
}

void kvw_cr_answer_keys_take(struct kvw_conn *conn, struct kvw_page *page)
{
	if (page->len <= KVW_CD_PAGE_MOST) {
		kvw_cr_answer_take(conn, 200, page);
		return;
	}
	free(page->data);
	kvw_coordinator_error(conn, 413, "",
		"the answer would have more than 64 MiB: ask for fewer keys at once");
}

void kvw_cr_refuse_value(
	struct kvw_conn *conn, const char *place, const char *name, const char *message)
{
	struct kvw_page page = {0};

	kvw_cr_of(conn)->refused++;
	kvw_cd_put(&page, "{'detail':[{'type':'value_error','loc':[%s", place);
	if (name != NULL)
		kvw_cd_put(&page, ",%s", name);
	kvw_cd_put(&page, "],'msg':%s}]}", message);
	kvw_cr_answer_take(conn, 422, &page);
}

bool kvw_cr_only_method(struct kvw_conn *conn, const char *allowed)
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
	kvw_coordinator_error(conn, 405, extra, "Method Not Allowed");
	return false;
}

/* --- requests' parts -------------------------------------------------------------------------- */

bool kvw_cr_is_method(const struct kvw_conn *conn, const char *method)
{
	return kvw_slice_equal(conn->clients->head.method, kvw_slice_of(method));
}

bool kvw_cr_parameter(const struct kvw_head *head, const char *name, char *text, size_t room)
{
	struct kvw_slice coded;
	size_t len;

	return kvw_target_query(head->target, name, &coded) &&
	       kvw_target_decode(coded, true, text, room, &len);
}

bool kvw_cr_number(
	struct kvw_conn *conn, const char *name, uint64_t least, uint64_t most, uint64_t *value)
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
	kvw_cr_refuse_value(conn, "query", name, message);
	return false;
}

json_t *kvw_cr_body(struct kvw_conn *conn, size_t most)
{
	char message[64];
	struct kvw_slice body = kvw_conn_body(conn);
	json_error_t error;
	json_t *object;

	if (body.len > most) {
		(void)snprintf(message, sizeof(message), "the body is above %zu MiB", most >> 20);
		kvw_coordinator_error(conn, 413, "", message);
		return NULL;
	}
	object = json_loadb(body.data == NULL ? "" : body.data, body.len, 0, &error);
	if (json_is_object(object))
		return object;
	json_decref(object);
	kvw_cr_refuse_value(conn, "body", NULL, "the body is no JSON object");
	return NULL;
}

bool kvw_cr_read_key(json_t *item, char hash[KVW_CE_HASH_MOST], struct kvw_ce_key *key)
{
	const char *digits, *model, *salt = "";
	json_int_t rank, group = 0;
	size_t len;

	if (json_unpack(item, "{s:s, s:s, s:I, s?I, s?s}", "chunk_hash_hex", &digits, "model_name",
		    &model, "kv_rank", &rank, "object_group_id", &group, "cache_salt", &salt) != 0)
		return false;
	len = strlen(digits);
	if (len % 2 != 0 || len > 2 * KVW_CE_HASH_MOST || rank < 0 || rank > UINT32_MAX ||
		group < 0 || group > UINT32_MAX)
		return false;
	for (size_t i = 0; i < len; i += 2) {
		if (!kvw_char_is(digits[i], KVW_CHAR_HEX) ||
			!kvw_char_is(digits[i + 1], KVW_CHAR_HEX))
			return false;
		hash[i / 2] = (char)(kvw_char_hex(digits[i]) << 4 | kvw_char_hex(digits[i + 1]));
	}
	*key = (struct kvw_ce_key){.hash = {hash, len / 2},
		.model = kvw_slice_of(model),
		.salt = kvw_slice_of(salt),
		.rank = (uint32_t)rank,
		.group = (uint32_t)group};
	return key->model.len <= KVW_CE_MODEL_MOST && strchr(model, '@') == NULL &&
	       key->salt.len <= KVW_CE_SALT_MOST && kvw_ce_is_salt(key->salt);
}
