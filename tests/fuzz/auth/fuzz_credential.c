/*
 * fuzz_credential.c - any bytes as a request's head: the key that it shows.
 *
 * Whatever is said of it, no field that may show a key keeps a byte of it, nor a query that does, and none of the
 * fields is forwarded.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "auth/credential.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool shows_key(const struct kvw_field *field)
{
	return kvw_slice_equal_nocase(field->name, KVW_SLICE("authorization")) ||
	       kvw_slice_equal_nocase(field->name, KVW_SLICE("x-api-key"));
}

/* A query with a key is overwritten whole: it lies in the bytes that were received. */
static void check_query(const struct kvw_head *head, enum kvw_credential found)
{
	const char *mark = memchr(head->target.data, '?', head->target.len);
	const char *end = head->target.data + head->target.len;

	if (found != KVW_CREDENTIAL_QUERY)
		return;
	require(mark != NULL);
	for (const char *at = mark + 1; at < end; at++)
		require(*at == '*');
}

static void check(struct kvw_head *head, enum kvw_credential found)
{
	size_t fields = 0;

	check_query(head, found);

	kvw_credential_hide(head);
	for (size_t i = 0; i < head->field_count; i++) {
		const struct kvw_field *field = &head->fields[i];

		if (!shows_key(field))
			continue;
		fields++;
		require(field->hop_by_hop);
		for (size_t k = 0; k < field->value.len; k++)
			require(field->value.data[k] == '*');
	}
	require(found != KVW_CREDENTIAL_FOUND || (fields >= 1 && fields <= 2));
	require(found != KVW_CREDENTIAL_SCHEME || fields >= 1);
	require(found != KVW_CREDENTIAL_TWICE || fields >= 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_head head = {0};
	struct kvw_head_error error;
	struct kvw_digest digest;
	char *copy = malloc(size + 1);

	require(copy != NULL && kvw_head_init(&head, 16) == KVW_OK);
	memcpy(copy, data, size);
	if (kvw_head_parse_request(&head, copy, size, &error) == KVW_OK)
		check(&head, kvw_credential_take(&head, &digest));
	kvw_head_finish(&head);
	free(copy);
	return 0;
}
