/*
 * fuzz_target.c - any bytes as the target of a request to kvtierd.
 *
 * What is taken keeps its limits, holds no NUL, and is named the same when each byte of its names is
 * written in hex; what is refused says why.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static size_t write_hex(char *to, struct kvw_slice text)
{
	for (size_t i = 0; i < text.len; i++)
		sprintf(to + 3 * i, "%%%02X", (unsigned char)text.data[i]);
	return 3 * text.len;
}

static void check_name(struct kvw_slice name, size_t most)
{
	require(name.len > 0 && name.len <= most && memchr(name.data, '\0', name.len) == NULL);
}

static void check_object(const struct kvt_target *t)
{
	static const char *const tails[] = {
		[KVT_PATH_BUCKET] = "", [KVT_PATH_OBJECT] = "", [KVT_PATH_LEASES] = "/leases"};
	char text[3 * (KVT_BUCKET_MOST + KVT_OBJECT_KEY_MOST) + 32] = "/v1/kv/";
	struct kvt_refusal why;
	struct kvt_target again;
	size_t used = strlen(text);

	check_name(t->bucket, KVT_BUCKET_MOST);
	used += write_hex(text + used, t->bucket);
	if (t->path != KVT_PATH_BUCKET) {
		check_name(t->key, KVT_OBJECT_KEY_MOST);
		text[used++] = '/';
		used += write_hex(text + used, t->key);
	}
	used += (size_t)sprintf(text + used, "%s", tails[t->path]);
	require(kvt_target_parse((struct kvw_slice){text, used}, &again, &why));
	require(again.path == t->path && kvw_slice_equal(again.bucket, t->bucket) &&
		kvw_slice_equal(again.key, t->key));
	require(t->limit >= 1 && t->limit <= KVT_LIST_MOST);
	require(t->after.len <= KVT_OBJECT_KEY_MOST);
	require(!t->has_ttl || t->ttl_ns > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_refusal why = {0};
	struct kvt_target t;

	if (!kvt_target_parse((struct kvw_slice){(const char *)data, size}, &t, &why)) {
		require(why.status == 400 || why.status == 404);
		require(why.message != NULL && why.message[0] != '\0');
		return 0;
	}
	require(t.used <= sizeof(t.text));
	if (t.path == KVT_PATH_BUCKET || t.path == KVT_PATH_OBJECT || t.path == KVT_PATH_LEASES)
		check_object(&t);
	else
		require(t.bucket.len == 0 && t.key.len == 0);
	return 0;
}
