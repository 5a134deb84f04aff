/*
 * keys_test.c - the table of keys against the struct, the page and the examples.
 *
 * Given the folder cache/options it checks what is committed there.
 */
#include "helpers.h"
#include "settings/unknown.h"
#include "tests/unit/suite.h"

#include <dirent.h>

/* Handed to the tests through their case's setup; a test program has no other way. */
static const char *folder;

/* Bytes of a member and what it is aligned to. */
static size_t alignment_of(const struct kvw_key *setting)
{
	return setting->type == &kvt_setting_FINGERPRINT ? 1 : setting->type->size;
}

/* The keys tile these bytes of the struct: none missing, none twice. Returns how many. */
static size_t keys_of(size_t at, size_t end)
{
	size_t met = 0;

	while (at < end) {
		const struct kvw_key *here = NULL;

		for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
			const struct kvw_key *s = &kvt_settings[i];
			size_t align = alignment_of(s);

			if (s->offset == (at + align - 1) / align * align) {
				ck_assert_msg(here == NULL || s->offset != here->offset,
					"%s and %s: the same member", s->path, here->path);
				if (here == NULL || s->offset < here->offset)
					here = s;
			}
		}
		if (here == NULL && at + sizeof(uint32_t) == sizeof(struct kvt_config))
			at += sizeof(uint32_t); /* padding at the end */
		if (at == end)
			break;
		ck_assert_msg(here != NULL, "no key for the member at %zu", at);
		at = here->offset + here->type->size;
		met++;
	}
	ck_assert_uint_eq(at, end);
	return met;
}

START_TEST(every_member_has_one_key)
{
	size_t met = keys_of(
		offsetof(struct kvt_config, fingerprint), offsetof(struct kvt_config, clock));

	met += keys_of(offsetof(struct kvt_config, nvme_lock_wait_ns), sizeof(struct kvt_config));
	ck_assert_uint_eq(met, KVT_SETTING_COUNT);
}
END_TEST

START_TEST(a_key_is_well_formed)
{
	const struct kvw_key *s = &kvt_settings[_i];
	const char *dot = strrchr(s->path, '.');
	char section[KVW_SCHEMA_MAX_PATH];
	union kvw_value value;
	struct kvw_fault fault;

	snprintf(section, sizeof(section), "%.*s", dot != NULL ? (int)(dot - s->path) : 0, s->path);
	ck_assert_uint_lt(kvt_setting_find_section(section), KVT_SETTING_SECTION_COUNT);
	ck_assert_uint_eq(kvt_setting_find(s->path), (size_t)_i);
	ck_assert_int_eq(kvt_setting_parse(s, kvw_slice_of(s->def), &value, &fault), KVW_OK);
	if (s->type->owned)
		free(value.text);
	ck_assert_int_eq(s->min[0] == '\0', s->max[0] == '\0');
	ck_assert_int_eq(s->min[0] != '\0', s->type->compare != NULL);
	if (s->min[0] != '\0') {
		ck_assert_int_eq(
			kvt_setting_parse(s, kvw_slice_of(s->min), &value, &fault), KVW_OK);
		ck_assert_int_eq(
			kvt_setting_parse(s, kvw_slice_of(s->max), &value, &fault), KVW_OK);
	}
	ck_assert_uint_gt(strlen(s->text), 10);
	ck_assert_msg(s->text[strlen(s->text) - 1] == '.', "%s: no sentence", s->path);
}
END_TEST

/* Every value that is printed reads back as the same. */
START_TEST(what_is_printed_is_read)
{
	static const char text[] =
		"fingerprint: "
		"\"00ff10e0aabbccddeeff00112233445566778899aabbccddeeff001122334455\"\n"
		"rank: 7\nthreads: caller\n"
		"l1: {capacity: 3GiB, backing: \"shm:kv-1\", lock: true, numa_node: 1, policy: lru,"
		" max_chunks: 1000, scrub_rate: 1000, staging_share: 0.125}\n"
		"nvme: {path: \"/a b/\\\"c\\\\d: #e\", capacity: 1TiB, io: threads, depth: 8,"
		" sync_bytes: 5MiB, sync_time: 1500ms, direct: false}\n"
		"protect: {keys: /k, ttl: 90m, tenant_l1_bytes: 1, tenant_nvme_bytes: 2KiB, tenant_l2_bytes: 3GiB}\n"
		"control: {ops: 5, fetch_when_slower: true, prefill_tokens_per_second: 1234.5,"
		" breaker_open: 2s, breaker_open_max: 2h}\n"
		"events: {publish: \"tcp://[::1]:5557\", replay: \"ipc:///r\", topic: \"kv@a\"}\n";
	struct reading first = read_text(text), second;
	char yaml[8192], value[KVT_SETTING_PRINT], again[KVT_SETTING_PRINT];
	size_t used = 0;

	ck_assert_msg(first.status == KVT_OK, "%s", first.report);
	for (size_t s = 0; s < KVT_SETTING_SECTION_COUNT; s++) {
		const char *section = kvt_setting_sections[s].path;
		bool top = section[0] == '\0';

		if (!top)
			used += (size_t)snprintf(
				yaml + used, sizeof(yaml) - used, "%s:\n", section);
		for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
			const char *name = kvw_name_in(section, kvt_settings[i].path);

			if (name == NULL)
				continue;
			kvt_setting_print(&kvt_settings[i], &first.config, value);
			used += (size_t)snprintf(yaml + used, sizeof(yaml) - used, "%s%s: %s\n",
				top ? "" : "  ", name, value);
		}
	}
	second = read_text(yaml);
	ck_assert_msg(second.status == KVT_OK, "%s\n%s", yaml, second.report);
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
		kvt_setting_print(&kvt_settings[i], &first.config, value);
		kvt_setting_print(&kvt_settings[i], &second.config, again);
		ck_assert_str_eq(value, again);
	}
	ck_assert_str_eq(second.config.nvme_path, "/a b/\"c\\d: #e");
	ck_assert_uint_eq(second.config.nvme_sync_ns, 1500000000u);
	ck_assert_uint_eq(second.config.l1_capacity, UINT64_C(3) << 30);
	ck_assert_uint_eq(second.config.fingerprint.bytes[1], 0xff);
	ck_assert_double_eq(second.config.prefill_tokens_per_second, 1234.5);
	reading_release(&first);
	reading_release(&second);
}
END_TEST

/* Sets every member of a configuration, so that "unchanged" cannot be "still default". */
START_TEST(init_writes_no_more_than_it_was_given)
{
	struct kvt_config config;
	size_t shorter = offsetof(struct kvt_config, events_queue);

	memset(&config, 0x5A, sizeof(config));
	kvt_config_init(&config, shorter);
	ck_assert_uint_eq(config.size, shorter);
	ck_assert_uint_eq(config.abi, KVT_ABI);
	ck_assert_uint_eq(config.nvme_depth, 32);
	ck_assert_uint_eq(config.events_queue, 0x5A5A5A5A);
	ck_assert_int_eq(kvt_config_read(&config, "a", "", 0, NULL), KVT_EINVAL);
}
END_TEST

/* A caller that was compiled with an older header is widened with defaults. */
START_TEST(an_older_struct_is_widened)
{
	struct kvt_config old, whole;

	kvt_config_init(&old, sizeof(old));
	old.rank = 9;
	old.events_queue = 1; /* out of range, but beyond what this caller has */
	old.size = offsetof(struct kvt_config, events_queue);
	ck_assert_int_eq(kvt_settings_check(&old, &whole, NULL), KVT_OK);
	ck_assert_uint_eq(whole.rank, 9);
	ck_assert_uint_eq(whole.events_queue, 65536);
	ck_assert_uint_eq(whole.size, sizeof(whole));
}
END_TEST

START_TEST(finish_leaves_usable_texts)
{
	struct reading r = read_text("nvme: {path: /p, policy: lru}\n");

	ck_assert_str_eq(r.config.nvme_path, "/p");
	kvt_config_finish(&r.config);
	ck_assert_str_eq(r.config.nvme_path, "");
	ck_assert_str_eq(r.config.nvme_policy, "default");
	kvt_config_finish(&r.config); /* twice is once */
	kvt_text_free(r.report);
}
END_TEST

/* A struct of zeros, as C fills it, is one that kvt_open takes. */
START_TEST(what_a_caller_left_out_has_its_default)
{
	struct kvt_config zeros = {.size = sizeof(zeros), .abi = KVT_ABI}, whole;
	char *report = NULL;

	kvt_settings_fill(&zeros);
	ck_assert_msg(kvt_settings_check(&zeros, &whole, &report) == KVT_OK, "%s", report);
	ck_assert_str_eq(zeros.l1_policy, "default");
	ck_assert_str_eq(zeros.nvme_path, "");
	ck_assert_uint_eq(zeros.nvme_depth, 32);
	ck_assert_uint_eq(zeros.l2_part_bytes, 4 << 20);
	ck_assert_uint_eq(zeros.l1_capacity, 0);   /* auto */
	ck_assert_uint_eq(zeros.l2_missing_ns, 0); /* means none */
	ck_assert_double_eq(zeros.l1_staging_share, 0);
}
END_TEST

static char *slurp(const char *name)
{
	char path[512];
	char *text = calloc(1, 1 << 17);
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "%s cannot be opened", path);
	ck_assert_ptr_nonnull(text);
	ck_assert_uint_gt(fread(text, 1, (1 << 17) - 1, file), 0);
	fclose(file);
	return text;
}

static void compare_file(const char *name, void (*write)(FILE *out), const char *command)
{
	char *text = slurp(name), *now = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&now, &bytes);

	ck_assert_ptr_nonnull(out);
	write(out);
	fclose(out);
	ck_assert_msg(strcmp(text, now) == 0, "%s is not what `%s` prints", name, command);
	free(now);
	free(text);
}

START_TEST(the_page_is_what_would_be_written)
{
	compare_file("REFERENCE.md", kvt_settings_reference, "kvtier reference");
	compare_file("examples/full.yaml", kvt_settings_example, "kvtier reference --example");
}
END_TEST

START_TEST(the_full_example_is_the_defaults)
{
	char *text = slurp("examples/full.yaml");
	struct reading r = read_text(text), fresh = read_text("");
	char a[KVT_SETTING_PRINT], b[KVT_SETTING_PRINT];

	ck_assert_msg(r.status == KVT_OK, "%s", r.report);
	for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
		kvt_setting_print(&kvt_settings[i], &r.config, a);
		kvt_setting_print(&kvt_settings[i], &fresh.config, b);
		ck_assert_str_eq(a, b);
		ck_assert_ptr_nonnull(strstr(text, strrchr(kvt_settings[i].path, '.') != NULL
							   ? strrchr(kvt_settings[i].path, '.') + 1
							   : kvt_settings[i].path));
	}
	reading_release(&r);
	reading_release(&fresh);
	free(text);
}
END_TEST

START_TEST(examples_load)
{
	char path[512];
	DIR *examples;
	size_t seen = 0;

	snprintf(path, sizeof(path), "%s/examples", folder);
	examples = opendir(path);
	ck_assert_ptr_nonnull(examples);
	for (struct dirent *d; (d = readdir(examples)) != NULL;) {
		struct reading r;
		char name[300];
		char *text;

		if (strstr(d->d_name, ".yaml") == NULL)
			continue;
		snprintf(name, sizeof(name), "examples/%s", d->d_name);
		text = slurp(name);
		r = read_text(text);
		ck_assert_msg(r.status == KVT_OK, "%s: %s", name, r.report);
		reading_release(&r);
		free(text);
		seen++;
	}
	closedir(examples);
	ck_assert_uint_ge(seen, 4);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("keys");

	folder = argc > 1 ? argv[1] : "cache/options";
	tcase_add_test(tc, every_member_has_one_key);
	tcase_add_loop_test(tc, a_key_is_well_formed, 0, KVT_SETTING_COUNT);
	tcase_add_test(tc, what_is_printed_is_read);
	tcase_add_test(tc, init_writes_no_more_than_it_was_given);
	tcase_add_test(tc, an_older_struct_is_widened);
	tcase_add_test(tc, finish_leaves_usable_texts);
	tcase_add_test(tc, what_a_caller_left_out_has_its_default);
	tcase_add_test(tc, the_page_is_what_would_be_written);
	tcase_add_test(tc, the_full_example_is_the_defaults);
	tcase_add_test(tc, examples_load);
	return run_tcase("cache-settings-keys", tc);
}
