/*
 * daemon_settings_test.c - kvtierd's configuration: defaults, mistakes, and what is committed of it.
 *
 * Given the folder cache/daemon it compares the pages and reads the examples.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon_settings.h"
#include "daemon/meters.h"
#include "tests/unit/suite.h"

/* Handed to the tests through main; a test program has no other way. */
static const char *folder;

static char *read_all(const char *name, size_t *len)
{
	char path[4096], *text = calloc(1, 1 << 20);
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "%s", path);
	*len = fread(text, 1, (1 << 20) - 1, file);
	fclose(file);
	return text;
}

static void same_page(const char *name, void (*write)(FILE *out))
{
	char *made = NULL, *committed;
	size_t len = 0, committed_len;
	FILE *out = open_memstream(&made, &len);

	write(out);
	fclose(out);
	committed = read_all(name, &committed_len);
	ck_assert_msg(len == committed_len && memcmp(made, committed, len) == 0,
		"%s is old: ninja -C BUILD daemon-reference", name);
	free(committed);
	free(made);
}

START_TEST(pages_are_those_of_the_tables)
{
	same_page("REFERENCE.md", kvt_daemon_reference);
	same_page("examples/full.yaml", kvt_daemon_example);
	same_page("METRICS.md", kvt_daemon_metrics_reference);
}
END_TEST

static char *print(const struct kvt_daemon_config *config)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	kvt_daemon_config_print(config, out);
	fclose(out);
	return text;
}

/* The example with every key at its default changes nothing. */
START_TEST(defaults)
{
	struct kvt_daemon_config config, again;
	char *report = NULL, *yaml, *a, *b;
	size_t len;

	kvt_daemon_config_init(&config);
	kvt_daemon_config_init(&again);
	yaml = read_all("examples/full.yaml", &len);
	ck_assert_msg(kvt_daemon_config_read(&again, "full.yaml", yaml, len, &report) == KVT_OK,
		"%s", report);
	a = print(&config);
	b = print(&again);
	ck_assert_str_eq(a, b);
	ck_assert_str_eq(config.listen, "127.0.0.1:9200");
	ck_assert_str_eq(config.segment_name, "shared_memory");
	ck_assert_uint_eq(config.lease_ttl_max_ns, UINT64_C(300000000000));
	free(a);
	free(b);
	free(yaml);
	kvt_daemon_config_finish(&again);
	kvt_daemon_config_finish(&config);
}
END_TEST

START_TEST(all_of_it_is_read)
{
	static const char yaml[] =
		"listen: 10.0.0.7:9200\nadmin: \"\"\nloops: 3\nclient_erase: true\n"
		"log_level: warn\nsegment: {name: kv-1, size: 2GiB}\n"
		"lease: {ttl: 10s, ttl_max: 20s, grace: 0s, wait: 2s, wait_max: 3s}\n"
		"limits: {connections: 5, leases: 6, puts: 7, object: 1MiB, body_rate: 0}\n"
		"cache:\n  l1: {policy: lru}\n  nvme: {path: /p, depth: 9}\n"
		"  l2: {url: \"redis://h:1\"}\n  protect: {ttl: 1h}\n"
		"buckets:\n- {name: a, memory: 1GiB}\n- {nvme: 2GiB, name: \"b c\"}\n";
	struct kvt_daemon_config config;
	char *report = NULL;

	kvt_daemon_config_init(&config);
	ck_assert_msg(
		kvt_daemon_config_read(&config, "t", yaml, sizeof(yaml) - 1, &report) == KVT_OK,
		"%s", report);
	/* Another text over it keeps what it does not name. */
	ck_assert_int_eq(kvt_daemon_config_read(&config, "t", "loops: 2", 8, &report), KVT_OK);
	ck_assert_str_eq(config.listen, "10.0.0.7:9200");
	ck_assert_str_eq(config.admin, "");
	ck_assert_uint_eq(config.loops, 2);
	ck_assert_uint_eq(config.client_erase, 1);
	ck_assert_uint_eq(config.log_level, KVT_LOG_WARN);
	ck_assert_str_eq(config.segment_name, "kv-1");
	ck_assert_uint_eq(config.segment_bytes, UINT64_C(2) << 30);
	ck_assert_uint_eq(config.lease_grace_ns, 0);
	ck_assert_uint_eq(config.object_bytes, 1 << 20);
	ck_assert_str_eq(config.cache.l1_policy, "lru");
	ck_assert_str_eq(config.cache.nvme_path, "/p");
	ck_assert_uint_eq(config.cache.nvme_depth, 9);
	ck_assert_str_eq(config.cache.l2_url, "redis://h:1");
	ck_assert_uint_eq(config.bucket_count, 2);
	ck_assert_str_eq(config.buckets[0].bucket, "a");
	ck_assert_uint_eq(config.buckets[0].memory_bytes, 1 << 30);
	ck_assert_uint_eq(config.buckets[0].nvme_bytes, 0);
	ck_assert_str_eq(config.buckets[1].bucket, "b c");
	ck_assert_uint_eq(config.buckets[1].nvme_bytes, UINT64_C(2) << 30);
	kvt_daemon_config_finish(&config);
}
END_TEST

START_TEST(a_login_is_not_shown)
{
	static const char *const urls[] = {
		"redis://u:secret@h:1", "redis://:secret@h:1", "redis://:s@h:1", "redis://u@h:1"};

	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		struct kvt_daemon_config config;
		char yaml[100], *report = NULL, *text;
		int len = snprintf(yaml, sizeof(yaml), "cache: {l2: {url: \"%s\"}}", urls[i]);

		kvt_daemon_config_init(&config);
		ck_assert_int_eq(
			kvt_daemon_config_read(&config, "t", yaml, (size_t)len, &report), KVT_OK);
		text = print(&config);
		ck_assert_msg(
			strstr(text, "\ncache.l2.url: \"redis://***@h:1\"\n") != NULL, "%s", text);
		free(text);
		kvt_daemon_config_finish(&config);
	}
}
END_TEST

static const struct {
	const char *yaml, *says;
} mistakes[] = {
	{"listen: \"\"", "t:1:9: listen: found an empty text, expected HOST:PORT"},
	{"listen: 9200", "t:1:9: listen: found `9200`, expected HOST:PORT"},
	{"a: 1\nadmin: 10.0.0.1:9201", "t:2:8: admin: found an address that other machines may"},
	{"segmnt: {}", "did you mean `segment`?"},
	{"segment: {size: 4k}", "t:1:17: segment.size: found `4k`, expected auto, or a size"},
	{"segment: {size: 1500000}",
		"t:1:17: segment.size: found 1500000 bytes, expected whole pages of "},
	{"segment: {name: a/b}", "segment.name: found `a/b`, expected a name of letters"},
	{"segment: {name: ..}", "segment.name: found `..`"},
	{"segment: {size: 1MiB}\nlimits: {object: 2MiB}", "t:2:18: limits.object: found more"},
	{"log_level: loud", "expected one of debug, info, warn, error"},
	{"lease: {ttl: 10m}", "t:1:14: lease.ttl: found more in lease.ttl than in lease.ttl_max"},
	{"lease: {wait_max: 1ms}", "lease.wait_max: found more in lease.wait"},
	{"cache: {l1: {capacity: 1GiB}}", "t:1:24: cache.l1.capacity: found a value of its own, "
					  "expected `segment.size`"},
	{"cache: {threads: caller}", "cache.threads: found a value of its own"},
	{"cache: {nvme: {pth: /x}}", "cache.nvme.pth: found an unknown key"},
	{"cache: {control: {breaker_open: 2s, breaker_open_max: 1s}}",
		"expected cache.control.breaker_open_max to be at least"},
	{"cache: {events: {replay: \"tcp://a:1\"}}", "expected `cache.events.publish` to be set too"},
	{"cache: 3", "cache: found text, expected keys such as"},
	{"buckets: 3", "buckets: found text, expected a list"},
	{"buckets: [a]", "buckets[0]: found text, expected an entry"},
	{"buckets: [{memory: 1}]", "buckets[0]: found no name"},
	{"buckets: [{name: a}, {name: a}]", "t:1:22: buckets[1]: found a bucket of this name"},
	{"buckets: [{name: a, memory: x}]",
		"t:1:29: buckets[0].memory: found `x`, expected a size"},
	{"buckets: [{name: a, memory: 1, memory: 2}]", "a second time"},
	{"buckets: [{name: a, mem: 1}]", "expected name, memory or nvme"},
	{"[]", "expected sections such as `segment:` and `cache:`"},
	{"a: {", "t:"},
};

START_TEST(a_mistake_is_reported)
{
	struct kvt_daemon_config config;
	char *report = NULL;

	kvt_daemon_config_init(&config);
	ck_assert_int_eq(kvt_daemon_config_read(&config, "t", mistakes[_i].yaml,
				 strlen(mistakes[_i].yaml), &report),
		KVT_EINVAL);
	ck_assert_msg(
		strstr(report, mistakes[_i].says) != NULL, "%s\n%s", mistakes[_i].yaml, report);
	ck_assert_str_ne(config.listen, "");
	kvt_text_free(report);
	kvt_daemon_config_finish(&config);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tcase = tcase_create("settings");

	folder = argc > 1 ? argv[1] : "cache/daemon";
	tcase_add_test(tcase, pages_are_those_of_the_tables);
	tcase_add_test(tcase, defaults);
	tcase_add_test(tcase, all_of_it_is_read);
	tcase_add_test(tcase, a_login_is_not_shown);
	tcase_add_loop_test(tcase, a_mistake_is_reported, 0, sizeof(mistakes) / sizeof(mistakes[0]));
	return run_tcase("daemon-settings", tcase);
}
