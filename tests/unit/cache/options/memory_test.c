/*
 * memory_test.c - reading a configuration when memory runs out at any point.
 *
 * The linker sends this program's calls of malloc, calloc and free, of open_memstream, and the reader's of
 * libyaml through counting_allocator.h and the function below (-Wl,--wrap). Each run lets one allocation more succeed than
 * the run before, until a read goes through. Whatever fails, the configuration is what it was and no
 * block is left.
 */
#include <yaml.h>

#include "helpers.h"
#include "tests/unit/counting_allocator.h"
#include "tests/unit/suite.h"

FILE *__real_open_memstream(char **text, size_t *size);
FILE *__wrap_open_memstream(char **text, size_t *size);

/* What it hands out is freed like a block of ours. */
FILE *__wrap_open_memstream(char **text, size_t *size)
{
	FILE *file = may_allocate() ? __real_open_memstream(text, size) : NULL;

	live += counting && file != NULL;
	return file;
}

static const char right[] = "rank: 3\nl1: {capacity: 1GiB, policy: lru}\n"
			    "nvme: {path: /p, io: threads}\n"
			    "events: {publish: \"tcp://a:1\", topic: t}\n";

static const char *const texts[] = {
	right,
	"rank: x\nl1: {capasity: 1GiB, policy: lur}\nnvme: {path: /p}\n",
	"l1: [",
};

START_TEST(memory_may_run_out_anywhere)
{
	const char *text = texts[_i];
	enum kvt_status status = KVT_ENOMEM;
	long failures = 0;

	for (long limit = 0; status == KVT_ENOMEM; limit++) {
		struct kvt_config config, fresh;
		char *report = NULL;

		ck_assert_int_lt(limit, 1000);
		kvt_config_init(&config, sizeof(config));
		kvt_config_init(&fresh, sizeof(fresh));
		live = 0;
		allowed = limit;
		counting = true;
		status = kvt_config_read(&config, "t.yaml", text, strlen(text), &report);
		counting = false; /* Check allocates too */
		allowed = -1;
		if (status == KVT_ENOMEM) {
			failures++;
			ck_assert_ptr_null(report);
			ck_assert_mem_eq(&config, &fresh, sizeof(config));
		} else {
			ck_assert_int_eq(status, _i == 0 ? KVT_OK : KVT_EINVAL);
			ck_assert_int_eq(report != NULL, _i != 0);
		}
		counting = true;
		kvt_config_finish(&config);
		kvt_text_free(report);
		counting = false;
		ck_assert_int_eq(live, 0);
	}
	ck_assert_int_gt(failures, 2);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("memory");

	tcase_add_loop_test(tc, memory_may_run_out_anywhere, 0, sizeof(texts) / sizeof(texts[0]));
	return run_tcase("cache-settings-memory", tc);
}
