/*
 * settings_test.c - LMCache's configuration: what comes out of the public function, that its page is
 * current, that the table agrees with itself, and that memory may run out anywhere.
 *
 * The many ways to write a wrong file are in tests/integration/test_kvtier_lmcache.py, where the
 * program and the connector say the same about each.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache/lmcache.h"
#include "tests/unit/suite.h"

static const char *page_path;
static long allowed = -1; /* allocations until failure; below 0: no limit */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);
FILE *__real_open_memstream(char **text, size_t *size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);
FILE *__wrap_open_memstream(char **text, size_t *size);

static bool may_allocate(void)
{
	if (allowed < 0)
		return true;
	return allowed-- > 0;
}

void *__wrap_malloc(size_t size)
{
	return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return may_allocate() ? __real_calloc(count, size) : NULL;
}

char *__wrap_strdup(const char *text)
{
	return may_allocate() ? __real_strdup(text) : NULL;
}

char *__wrap_strndup(const char *text, size_t len)
{
	return may_allocate() ? __real_strndup(text, len) : NULL;
}

FILE *__wrap_open_memstream(char **text, size_t *size)
{
	return may_allocate() ? __real_open_memstream(text, size) : NULL;
}

static struct kvt_lmcache_source source_of(const char *const *variables)
{
	return (struct kvt_lmcache_source){
		.size = sizeof(struct kvt_lmcache_source), .ranks = 2, .variables = variables};
}

START_TEST(variables_become_settings)
{
	static const char *const variables[] = {"PATH=/bin", "LMCACHE_CHUNK_SIZE=64",
		"LMCACHE_MAX_LOCAL_CPU_SIZE=0.5", "LMCACHE_USE_LAYERWISE=true",
		"LMCACHE_SAVE_DECODE_CACHE=False", "LMCACHE_BLOCKING_TIMEOUT_SECS=1.5",
		"LMCACHE_ENABLE_P2P=1", "lmcache.chunk_size=32", NULL};
	struct kvt_lmcache_source source = source_of(variables);
	struct kvt_lmcache out = {.size = sizeof(out)};

	ck_assert_int_eq(kvt_lmcache_read(&source, &out), KVT_EINVAL);
	ck_assert_str_eq(out.settings, "{\"l1\": {\"capacity\": \"536870912\"}}\n");
	ck_assert_str_eq(out.connector, "{\"chunk_size\": 32, \"save_decode_cache\": false, "
					"\"load_timeout_ms\": 1500}\n");
	ck_assert_str_eq(out.mistakes, "LMCACHE_ENABLE_P2P: found `1`, which cannot be had: share "
				       "chunks by `remote_url`\n");
	ck_assert_str_eq(out.notes,
		"LMCACHE_USE_LAYERWISE: ignored: chunks are copied whole, while requests run\n"
		"LMCACHE_MAX_LOCAL_CPU_SIZE: 0.5 GiB of each of 2 ranks, 1 GiB together\n");
	kvt_lmcache_finish(&out);
	kvt_lmcache_finish(&out);
}
END_TEST

START_TEST(without_any_there_is_nothing)
{
	static const char *const others[] = {"LMCACHE_LOG_LEVEL=INFO", "HOME=/", NULL};
	static const char *const none[] = {
		"LMCACHE_CONFIG_FILE=/tmp/x", "lmcache.chunk_size=1", NULL};
	struct kvt_lmcache_source source = source_of(others);
	struct kvt_lmcache out = {.size = sizeof(out)};

	ck_assert_int_eq(kvt_lmcache_read(&source, &out), KVT_MISS);
	source.variables = NULL;
	ck_assert_int_eq(kvt_lmcache_read(&source, &out), KVT_MISS);
	ck_assert_ptr_null(out.settings);
	source.size = 4;
	ck_assert_int_eq(kvt_lmcache_read(&source, &out), KVT_EINVAL);
	ck_assert(kvt_lmcache_has_variables(none) && kvt_lmcache_has_variables(none + 1));
}
END_TEST

/* Defaults read as their own type, settings that are named exist, no name is there twice. */
START_TEST(the_table_agrees_with_itself)
{
	for (size_t i = 0; i < KVT_LMC_COUNT; i++) {
		const struct kvt_lmcache_key *key = &kvt_lmcache_keys[i];
		struct kvt_lmcache_source source = source_of(NULL);
		struct kvt_lmcache_reading *r;
		char yaml[160];

		ck_assert_uint_eq(kvt_lmcache_find(key->name, key->extra), i);
		if (strchr(key->becomes, '.') != NULL)
			ck_assert_msg(kvt_setting_find(key->becomes) < KVT_SETTING_COUNT, "%s",
				key->becomes);
		ck_assert_msg(key->becomes[0] != '\0' || key->text[0] != '\0', "%s", key->name);
		if (key->def[0] == '\0')
			continue;
		snprintf(yaml, sizeof(yaml), "%s: \"%s\"\n", key->name, key->def);
		ck_assert_int_eq(kvt_lmcache_begin(&r, &source), KVW_OK);
		kvt_lmcache_translate(r, "t.yaml", yaml, strlen(yaml));
		ck_assert_msg(r->values[i].usual, "%s", key->name);
		ck_assert_str_eq(r->mistakes.text, "");
		ck_assert_str_eq(r->notes.text, i == KVT_LMC_max_local_cpu_size
							? "t.yaml:1:21: max_local_cpu_size: 5 GiB "
							  "of each of 2 ranks, 10 GiB together\n"
							: "");
		kvt_lmcache_finish_reading(r);
	}
	for (const struct kvt_lmcache_alias *a = kvt_lmcache_aliases; a->old != NULL; a++)
		ck_assert_str_eq(kvt_lmcache_keys[kvt_lmcache_find(a->old, false)].name, a->name);
}
END_TEST

START_TEST(the_page_is_current)
{
	char *page = NULL, *file = NULL;
	size_t len = 0, file_len = 0;
	FILE *out = open_memstream(&page, &len), *in = fopen(page_path, "re");

	ck_assert(out != NULL && in != NULL);
	kvt_lmcache_reference(out);
	fclose(out);
	ck_assert(getdelim(&file, &file_len, '\0', in) > 0);
	fclose(in);
	ck_assert_msg(strcmp(page, file) == 0, "run ninja -C BUILD lmcache-reference");
	free(page);
	free(file);
}
END_TEST

START_TEST(memory_may_run_out_anywhere)
{
	static const char *const variables[] = {"LMCACHE_LOCAL_DISK=/a", "LMCACHE_CHUNK_SIZE=x",
		"LMCACHE_MAX_LOCAL_DISK_SIZE=1", "LMCACHE_REMOTE_URL=redis://u:p@h:1",
		"LMCACHE_EXTRA_CONFIG={\"use_odirect\": true, \"y\": 1}", "LMCACHE_USE_LAYERWISE=1",
		NULL};
	struct kvt_lmcache_source source = source_of(variables);
	enum kvt_status status = KVT_ENOMEM;
	long limit = 0;

	for (; status == KVT_ENOMEM; limit++) {
		struct kvt_lmcache out = {.size = sizeof(out)};

		ck_assert_int_lt(limit, 1000);
		allowed = limit;
		status = kvt_lmcache_read(&source, &out);
		allowed = -1;
		ck_assert_int_eq(status == KVT_ENOMEM, out.settings == NULL);
		kvt_lmcache_finish(&out);
	}
	ck_assert_int_eq(status, KVT_EINVAL);
	ck_assert_int_gt(limit, 20);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *cases = tcase_create("lmcache");

	if (argc != 2)
		return EXIT_FAILURE;
	page_path = argv[1];
	tcase_add_test(cases, variables_become_settings);
	tcase_add_test(cases, without_any_there_is_nothing);
	tcase_add_test(cases, the_table_agrees_with_itself);
	tcase_add_test(cases, the_page_is_current);
	tcase_add_test(cases, memory_may_run_out_anywhere);
	return run_tcase("lmcache", cases);
}
