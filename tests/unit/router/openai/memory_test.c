/*
 * memory_test.c - every allocation of a scan fails once; the answer is KVW_ENOMEM each time.
 *
 * The linker sends the scan's realloc() and aligned_alloc() here (--wrap).
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "openai/scan.h"
#include "tests/unit/suite.h"

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static long until_failure = -1; /* allocations that still succeed; -1: all */

static bool fails(void)
{
	return until_failure >= 0 && until_failure-- == 0;
}

void *__wrap_realloc(void *memory, size_t size)
{
	return fails() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

/* A body that needs every array of a scan; fed in small pieces, so that tokens are cut. */
static void make_body(char *body, enum kvw_api api)
{
	if (api == KVW_API_COMPLETIONS) {
		strcpy(body, "{\"model\":\"m\",\"prompt\":[");
		for (int i = 0; i < 100; i++)
			strcat(body, i == 0 ? "\"a\"" : ",\"a\"");
		strcat(body, "]}");
		return;
	}
	strcpy(body, "{\"model\":\"m\",\"us\\u0065r\":\"u\",\"tools\":[{\"a\":{\"b\":[1,2.5]},"
		     "\"c\":\"d\"}],"
		     "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}");
	for (int i = 0; i < 40; i++)
		strcat(body, ",{\"role\":\"user\",\"name\":\"n\",\"content\":[\"a\",\"b\"]}");
	strcat(body, "]}");
}

/* Returns false once no allocation failed any more. */
static bool try_once(enum kvw_api api, const char *body, long failing)
{
	struct kvw_route_request request;
	struct kvw_scan *scan = NULL;
	enum kvw_err err;
	bool failed;

	until_failure = failing;
	err = kvw_scan_create(NULL, &scan);
	if (err == KVW_OK) {
		kvw_scan_reset(scan, api);
		for (const char *p = body; *p != '\0'; p += strnlen(p, 7))
			kvw_scan_feed(scan, p, strnlen(p, 7));
		err = kvw_scan_finish(scan, &request);
	}
	failed = until_failure < 0;
	until_failure = -1;
	ck_assert_int_eq(err, failed ? KVW_ENOMEM : KVW_OK);
	if (scan != NULL && failed) {
		ck_assert(!request.content_known);
		ck_assert_int_eq(request.api, api);
		/* The next body has nothing to do with it. */
		kvw_scan_reset(scan, api);
		kvw_scan_feed(scan, body, strlen(body));
		ck_assert_int_eq(kvw_scan_finish(scan, &request), KVW_OK);
		ck_assert(request.content_known);
	}
	kvw_scan_destroy(scan);
	return failed;
}

START_TEST(each_allocation_fails)
{
	static const enum kvw_api apis[] = {KVW_API_COMPLETIONS, KVW_API_CHAT};
	char body[8192];
	long failing = 0;

	make_body(body, apis[_i]);
	while (try_once(apis[_i], body, failing))
		failing++;
	ck_assert_int_gt(failing, 5);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("allocation");

	tcase_add_loop_test(tc, each_allocation_fails, 0, 2);
	return run_tcase("openai-memory", tc);
}
