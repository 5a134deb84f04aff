/*
 * target_test.c - which targets are taken, what they name, and what answer the others get.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/target.h"
#include "tests/unit/suite.h"

static const struct {
	const char *target;
	enum kvt_path path;
	const char *bucket, *key; /* NULL: none */
} good[] = {
	{"/health", KVT_PATH_HEALTH, NULL, NULL},
	{"/ready?x=1", KVT_PATH_READY, NULL, NULL},
	{"/metrics", KVT_PATH_METRICS, NULL, NULL},
	{"/trace?limit=10", KVT_PATH_TRACE, NULL, NULL},
	{"/v1/buckets", KVT_PATH_BUCKETS, NULL, NULL},
	{"/v1/kv/b", KVT_PATH_BUCKET, "b", NULL},
	{"/v1/kv/b/k", KVT_PATH_OBJECT, "b", "k"},
	{"/v1/kv/b/k?timeout_ms=x", KVT_PATH_OBJECT, "b", "k"}, /* not looked at here */
	{"/v1/kv/b/leases", KVT_PATH_OBJECT, "b", "leases"},
	{"/v1/kv/b/k/leases", KVT_PATH_LEASES, "b", "k"},
	{"/v1/kv/b/leases/leases", KVT_PATH_LEASES, "b", "leases"},
	{"/v1/kv/lmcache/vllm@Qwen%2FQwen3-8B@1@0@1190b7ce1b54082@bfloat16/leases", KVT_PATH_LEASES,
		"lmcache", "vllm@Qwen/Qwen3-8B@1@0@1190b7ce1b54082@bfloat16"},
	{"/v1/kv/lmcache/a%20b%2Bc%25d:e,f~g(h)%2Fi@1", KVT_PATH_OBJECT, "lmcache",
		"a b+c%d:e,f~g(h)/i@1"},
	{"/v1/kv/../..", KVT_PATH_OBJECT, "..", ".."},
	{"/v1/kv/./%2e%2E%2f", KVT_PATH_OBJECT, ".", "../"},
	{"/v1/kv/%2e%2e/%252F", KVT_PATH_OBJECT, "..", "%2F"},
	{"/v1/kv/b/%C3%A4", KVT_PATH_OBJECT, "b", "\xC3\xA4"},
	{"/v1/kv/b/a+b", KVT_PATH_OBJECT, "b", "a+b"},
};

static bool equal(struct kvw_slice text, const char *wanted)
{
	return wanted == NULL ? text.len == 0 : kvw_slice_equal(text, kvw_slice_of(wanted));
}

START_TEST(a_target_names_this)
{
	struct kvt_target t;
	struct kvt_refusal why;

	ck_assert(kvt_target_parse(kvw_slice_of(good[_i].target), &t, &why));
	ck_assert_int_eq(t.path, good[_i].path);
	ck_assert(equal(t.bucket, good[_i].bucket));
	ck_assert(equal(t.key, good[_i].key));
}
END_TEST

static const struct {
	const char *target;
	int status;
	const char *part;
} bad[] = {
	{"", 404, "no such path"},
	{"*", 404, "no such path"},
	{"/", 404, "no such path"},
	{"//", 404, "no such path"},
	{"/health/", 404, "no such path"},
	{"/Health", 404, "no such path"},
	{"/v1/kv", 404, "no such path"},
	{"/v1/leases/x", 404, "no such path"},
	{"/v1/leases/x/release/", 404, "no such path"},
	{"/v1/../v1/kv/b/k", 404, "no such path"},
	{"/v1//kv/b/k", 404, "no such path"},
	{"/%761/kv/b/k", 404, "no such path"},
	{"/v1%2Fkv%2Fb%2Fk", 404, "no such path"},
	{"/v1/kv/", 400, "bucket is empty"},
	{"/v1/kv//k", 400, "bucket is empty"},
	{"/v1/kv/b/", 400, "key is empty"},
	{"/v1/kv/b//leases", 400, "key is empty"},
	{"/v1/kv/b/k/", 400, "%2F"},
	{"/v1/kv/b/k/lease", 400, "%2F"},
	{"/v1/kv/b/k/leases/", 400, "%2F"},
	{"/v1/kv/b/a/b/c/d/leases", 400, "%2F"},
	{"/v1/kv/b/%", 400, "two hex digits"},
	{"/v1/kv/b/%2", 400, "two hex digits"},
	{"/v1/kv/b/%2g", 400, "two hex digits"},
	{"/v1/kv/b/%G2", 400, "two hex digits"},
	{"/v1/kv/b%/k", 400, "two hex digits"},
	{"/v1/kv/b/a%00b", 400, "NUL"},
	{"/v1/kv/%00/b", 400, "NUL byte in the bucket"},
	{"/v1/kv/b/%ff", 400, "UTF-8"},
	{"/v1/kv/b/%C0%AF", 400, "UTF-8"},
	{"/v1/kv/b/%ED%A0%80", 400, "UTF-8"},
	{"/v1/kv/b/%F4%90%80%80", 400, "UTF-8"},
	{"/v1/kv/b/%C3", 400, "UTF-8"},
	{"/v1/kv/b/k/leases?timeout_ms=", 400, "timeout_ms"},
	{"/v1/kv/b/k/leases?timeout_ms", 400, "timeout_ms"},
	{"/v1/kv/b/k/leases?timeout_ms=-1", 400, "timeout_ms"},
	{"/v1/kv/b/k/leases?timeout_ms=1.5", 400, "timeout_ms"},
	{"/v1/kv/b/k/leases?timeout_ms=1&timeout_ms=1", 400, "timeout_ms"},
	{"/v1/kv/b/k/leases?timeout_ms=99999999999999999999999", 400, "timeout_ms"},
	{"/v1/kv/b/k/leases?ttl_s=0", 400, "ttl_s"},
	{"/v1/kv/b/k/leases?ttl_s=nan", 400, "ttl_s"},
	{"/v1/kv/b/k/leases?ttl_s=inf", 400, "ttl_s"},
	{"/v1/kv/b/k/leases?ttl_s=0x10", 400, "ttl_s"},
	{"/v1/kv/b/k/leases?ttl_s=1e99", 400, "ttl_s"},
	{"/v1/kv/b/k/leases?ttl_s=30&a&ttl_s=30", 400, "ttl_s"},
	{"/v1/kv/b?limit=0", 400, "limit"},
	{"/v1/kv/b?tenant=", 400, "tenant: expected 32 hex digits"},
	{"/v1/kv/b?tenant=00112233445566778899aabbccddeef", 400, "tenant"},
	{"/v1/kv/b?tenant=00112233445566778899aabbccddeefg", 400, "tenant"},
	{"/v1/kv/b?tenant=00112233445566778899aabbccddeeff&tenant=00112233445566778899aabbccddeeff", 400,
		"once"},
	{"/v1/kv/b?limit=1001", 400, "limit"},
	{"/v1/kv/b?after=%", 400, "after"},
	{"/v1/kv/b?after=a&after=b", 400, "after"},
};

START_TEST(a_target_is_refused)
{
	struct kvt_target t;
	struct kvt_refusal why;

	ck_assert_msg(
		!kvt_target_parse(kvw_slice_of(bad[_i].target), &t, &why), "%s", bad[_i].target);
	ck_assert_msg(why.status == bad[_i].status && strstr(why.message, bad[_i].part) != NULL,
		"%s: %d %s", bad[_i].target, why.status, why.message);
}
END_TEST

/* The limits hold for decoded bytes, whichever way they are written. */
START_TEST(limits_of_names)
{
	char target[4 * KVT_OBJECT_KEY_MOST + 64];
	struct kvt_refusal why;
	struct kvt_target t;

	for (int encoded = 0; encoded < 2; encoded++)
		for (int over = 0; over < 2; over++) {
			size_t used = (size_t)snprintf(target, sizeof(target), "/v1/kv/b/");

			for (int i = 0; i < KVT_OBJECT_KEY_MOST + over; i++)
				used += (size_t)snprintf(target + used, sizeof(target) - used,
					encoded ? "%%61" : "a");
			ck_assert_int_eq(
				kvt_target_parse(kvw_slice_of(target), &t, &why), over == 0);
			if (over == 0)
				ck_assert_uint_eq(t.key.len, KVT_OBJECT_KEY_MOST);
			else
				ck_assert(strstr(why.message, "longer than 1024") != NULL);
		}
	snprintf(target, sizeof(target), "/v1/kv/%0128d/k", 1);
	ck_assert(kvt_target_parse(kvw_slice_of(target), &t, &why));
	snprintf(target, sizeof(target), "/v1/kv/%0129d/k", 1);
	ck_assert(!kvt_target_parse(kvw_slice_of(target), &t, &why));
}
END_TEST

START_TEST(wishes_of_a_lease)
{
	struct kvt_refusal why;
	struct kvt_target t;

	ck_assert(kvt_target_parse(
		KVW_SLICE("/v1/kv/b/k/leases?timeout_ms=5000&ttl_s=30.0"), &t, &why));
	ck_assert(t.has_timeout && t.has_ttl);
	ck_assert_uint_eq(t.timeout_ns, UINT64_C(5000000000));
	ck_assert_uint_eq(t.ttl_ns, UINT64_C(30000000000));
	ck_assert(kvt_target_parse(
		KVW_SLICE("/v1/kv/b/k/leases?&x=1&ttl_s=1e-05&&timeout_ms=0&"), &t, &why));
	ck_assert_uint_eq(t.timeout_ns, 0);
	ck_assert_uint_eq(t.ttl_ns, 10000);
	ck_assert(kvt_target_parse(KVW_SLICE("/v1/kv/b/k/leases?"), &t, &why));
	ck_assert(!t.has_timeout && !t.has_ttl && !t.unchecked);
	ck_assert(kvt_target_parse(KVW_SLICE("/v1/kv/b/k/leases?check=1"), &t, &why));
	ck_assert(!t.unchecked);
	ck_assert(kvt_target_parse(KVW_SLICE("/v1/kv/b/k/leases?check=0"), &t, &why));
	ck_assert(t.unchecked);
	ck_assert(!kvt_target_parse(KVW_SLICE("/v1/kv/b/k/leases?check=no"), &t, &why));
	ck_assert(kvt_target_parse(
		KVW_SLICE("/v1/generations?id=0102030405060708090a0b0c0d0e0f10&after=7&slot=132095"), &t, &why));
	ck_assert_uint_eq(t.table[15], 16);
	ck_assert_uint_eq(t.number, 7);
	ck_assert_uint_eq(t.slot, 132095);
	ck_assert(kvt_target_parse(KVW_SLICE("/v1/generations"), &t, &why));
	ck_assert_uint_eq(t.slot, KVT_SLOT_NONE);
	ck_assert(!kvt_target_parse(KVW_SLICE("/v1/generations?slot=132096"), &t, &why));
	ck_assert(kvt_target_parse(KVW_SLICE("/v1/kv/b?after=a%2Fb&limit=7"), &t, &why));
	ck_assert(equal(t.after, "a/b"));
	ck_assert_uint_eq(t.limit, 7);
	ck_assert(kvt_target_parse(KVW_SLICE("/v1/kv/b?after="), &t, &why));
	ck_assert_uint_eq(t.after.len, 0);
	ck_assert_uint_eq(t.limit, KVT_LIST_MOST);
	ck_assert(kvt_target_parse(KVW_SLICE("/v1/leases/0af3-_x/release"), &t, &why));
	ck_assert(equal(t.id, "0af3-_x"));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("target");

	tcase_add_loop_test(tcase, a_target_names_this, 0, sizeof(good) / sizeof(good[0]));
	tcase_add_loop_test(tcase, a_target_is_refused, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tcase, limits_of_names);
	tcase_add_test(tcase, wishes_of_a_lease);
	return run_tcase("daemon-target", tcase);
}
