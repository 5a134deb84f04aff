/*
 * mistakes_test.c - each way to write a wrong configuration, and what the user reads about it.
 *
 * Every row is one mistake: exactly one line must come, at this line and column, with this key,
 * holding these words; and the configuration must be what it was.
 */
#include "helpers.h"
#include "tests/unit/suite.h"

struct mistake {
	const char *text;
	unsigned line, column;
	const char *key; /* NULL: syntax, no key */
	const char *says[3];
};

static const struct mistake mistakes[] = {
	/* Names */
	{"l1:\n  capasity: 1GiB\n", 2, 3, "l1.capasity", {"unknown key", "`l1.capacity`?"}},
	{"nvm:\n  path: /a\n", 1, 1, "nvm", {"did you mean `nvme`?"}},
	{"capacity: 1GiB\n", 1, 1, "capacity", {"did you mean `l1.capacity`?"}},
	{"l1.capacity: 1GiB\n", 1, 1, "l1.capacity", {"key with a dot"}},
	{"qwertzui: 1\n", 1, 1, "qwertzui", {"one of fingerprint, rank, threads, l1, nvme"}},
	{"<<: {rank: 1}\n", 1, 1, "<<", {"merge key"}},
	{"rank: 1\nrank: 2\n", 2, 1, "rank", {"second time", "first given in line 1"}},
	{"l1: {lock: true}\nl1: {lock: true}\n", 2, 1, "l1", {"second time", "line 1"}},
	{"l1: 10GiB\n", 1, 5, "l1", {"found text", "`capacity:` below it"}},
	{"l1: [capacity]\n", 1, 5, "l1", {"found a list"}},
	{"- l1\n", 1, 1, NULL, {"found a list", "`l1:` and `nvme:`"}},
	{"\"ra\\0nk\": 1\n", 1, 1, "ra", {"unknown key"}},

	/* Sizes and numbers */
	{"l1: {capacity: 10GB}\n", 1, 16, "l1.capacity", {"found `10GB`", "did you mean `10GiB`?"}},
	{"l1: {capacity: 0}\n", 1, 16, "l1.capacity", {"found `0`", "did you mean `auto`?"}},
	{"l1: {capacity: 1KiB}\n", 1, 16, "l1.capacity", {"expected auto, or 1MiB to 64TiB"}},
	{"l1: {capacity: -1}\n", 1, 16, "l1.capacity", {"expected auto, or a size such as"}},
	{"l1: {capacity: 99999999999TiB}\n", 1, 16, "l1.capacity", {"expected auto, or a size"}},
	{"l1: {capacity: [1GiB]}\n", 1, 16, "l1.capacity", {"found a list", "a size such as"}},
	{"l1:\n  capacity:\n", 2, 12, "l1.capacity", {"found nothing", "a size such as"}},
	{"l1: {max_chunks: 4294967297}\n", 1, 18, "l1.max_chunks", {"a whole number"}},
	{"l1: {staging_share: 0.6}\n", 1, 21, "l1.staging_share", {"expected 0 to 0.5"}},
	{"l1: {staging_share: nan}\n", 1, 21, "l1.staging_share", {"a number such as 0.25"}},
	{"l1: {numa_node: -2}\n", 1, 17, "l1.numa_node", {"expected -1 to 1023"}},
	{"l1: {lock: yes}\n", 1, 12, "l1.lock", {"true or false", "did you mean `true`?"}},
	{"nvme: {depth: 0}\n", 1, 15, "nvme.depth", {"expected 1 to 1024"}},
	{"nvme: {sync_time: 5}\n", 1, 19, "nvme.sync_time", {"did you mean `5s`?"}},
	{"nvme: {sync_time: 0s}\n", 1, 19, "nvme.sync_time", {"expected 1ms to 1h"}},
	{"rank: -1\n", 1, 7, "rank", {"a whole number"}},
	{"rank: 1000001\n", 1, 7, "rank", {"expected 0 to 1000000"}},

	/* Words */
	{"l1: {policy: lur}\n", 1, 14, "l1.policy", {"one of default, ", "did you mean `lru`?"}},
	{"l1: {backing: shm}\n", 1, 15, "l1.backing", {"one of anon, hugetlb, shm:NAME"}},
	{"l1: {backing: \"shm:../x\"}\n", 1, 15, "l1.backing", {"a name of letters"}},
	{"l2: {url: \"rediss//x\"}\n", 1, 11, "l2.url", {"redis://, redis-cluster://"}},
	{"l2: {url: \"redis://a,b\"}\n", 1, 11, "l2.url", {"one server"}},
	{"l2: {url: \"redis://h:0\"}\n", 1, 11, "l2.url", {"HOST:PORT"}},
	{"l2: {url: \"redis://%4@h\"}\n", 1, 11, "l2.url", {"as %XX"}},
	{"l2: {url: \"redis://u:secret@h:x\"}\n", 1, 11, "l2.url", {"found a URL with a login, expected HOST:PORT"}},
	{"l2: {format: lmcache}\n", 1, 6, "l2.format", {"which was removed"}},
	{"l2: {layout: x}\n", 1, 6, "l2.layout", {"which was removed"}},
	{"l1: {backing: \"shm:.x\"}\n", 1, 15, "l1.backing", {"a name of letters"}},
	{"l1: {backing: \"shm:NA/ME\"}\n", 1, 15, "l1.backing", {"a name of letters"}},
	{"nvme: {io: iouring}\n", 1, 12, "nvme.io", {"one of auto, uring, threads"}},
	{"node: {share: sometimes}\n", 1, 15, "node.share", {"one of never, auto, always"}},
	{"threads: mine\n", 1, 10, "threads", {"one of own, caller"}},
	{"fingerprint: abc\n", 1, 14, "fingerprint", {"64 hex digits"}},

	/* Texts */
	{"nvme: {path: \"a\\nb\"}\n", 1, 14, "nvme.path", {"without control characters"}},
	{"nvme: {path: \"a\\0b\"}\n", 1, 14, "nvme.path", {"without control characters"}},
	{"nvme: {path: \"a\\Nb\"}\n", 1, 14, "nvme.path", {"without control characters"}},
	{"events: {topic: \"a\\Lb\"}\n", 1, 17, "events.topic", {"without control characters"}},
	{"events: {publish: \"127.0.0.1:5557\"}\n", 1, 19, "events.publish",
		{"did you mean `tcp://127.0.0.1:5557`?"}},
	{"events: {publish: \"tcp://127.0.0.1\"}\n", 1, 19, "events.publish", {"tcp://HOST:PORT"}},
	{"events: {publish: \"tcp://127.0.0.1:70000\"}\n", 1, 19, "events.publish",
		{"tcp://HOST:PORT"}},
	{"events: {publish: \"http://127.0.0.1:1\"}\n", 1, 19, "events.publish",
		{"tcp://HOST:PORT"}},

	/* Between keys */
	{"control: {breaker_open: 10m}\n", 1, 25, "control.breaker_open", {"shorter than"}},
	{"control: {breaker_open_max: 1s}\n", 1, 29, "control.breaker_open_max", {"shorter than"}},
	{"node: {url: \"redis://a:1\"}\n", 1, 13, "node.url", {"expected kvtierd://HOST:PORT"}},
	{"protect: {tenant_l2_bytes: 1XiB}\n", 1, 28, "protect.tenant_l2_bytes", {"1XiB"}},
	{"protect: {tenant_l2_bytes: -1}\n", 1, 28, "protect.tenant_l2_bytes", {"-1"}},
	{"l2: {url: \"kvtierd://127.0.0.1:9200\"}\nprotect: {tenant_l2_bytes: 1GiB}\n", 2, 28,
		"protect.tenant_l2_bytes", {"`cache.protect.tenant_l1_bytes`"}},
	{"events: {replay: \"tcp://a:1\"}\n", 1, 18, "events.replay",
		{"`events.publish` to be set too"}},

	/* YAML */
	{"l1: {capacity: *x}\n", 1, 16, "l1.capacity", {"alias"}},
	{"l1:\n\tcapacity: 1GiB\n", 2, 1, NULL, {"tab"}},
	{"a: [", 2, 1, NULL, {"not valid YAML"}},
};

START_TEST(one_mistake)
{
	const struct mistake *m = &mistakes[_i];
	struct reading r = read_text(m->text);
	char place[160];

	ck_assert_msg(r.status == KVT_EINVAL, "%s: accepted", m->text);
	ck_assert_ptr_nonnull(r.report);
	ck_assert_msg(r.lines == 1, "%s: said\n%s", m->text, r.report);
	snprintf(place, sizeof(place), "t.yaml:%u:%u: %s%s", m->line, m->column,
		m->key != NULL ? m->key : "", m->key != NULL ? ": " : "");
	if (m->line == 2 && m->key == NULL) /* libyaml decides where broken text breaks */
		snprintf(place, sizeof(place), "t.yaml:");
	ck_assert_msg(
		strncmp(r.report, place, strlen(place)) == 0, "%s: said\n%s", m->text, r.report);
	for (size_t i = 0; i < 3 && m->says[i] != NULL; i++)
		ck_assert_msg(
			strstr(r.report, m->says[i]) != NULL, "%s: said\n%s", m->text, r.report);
	reading_release(&r);
}
END_TEST

/* What is right applies, what is wrong keeps what it had. */
START_TEST(the_rest_applies)
{
	struct reading r = read_text("rank: 3\nl1:\n  capacity: 1TB\n  policy: lru\n"
				     "  lock: maybe\nnvme:\n  path: /data\n  deepth: 4\n");
	struct kvt_config fresh;

	kvt_config_init(&fresh, sizeof(fresh));
	ck_assert_int_eq(r.status, KVT_EINVAL);
	ck_assert_uint_eq(r.lines, 3);
	ck_assert_uint_eq(r.config.rank, 3);
	ck_assert_uint_eq(r.config.l1_capacity, fresh.l1_capacity);
	ck_assert_str_eq(r.config.l1_policy, "lru");
	ck_assert_uint_eq(r.config.l1_lock, 0);
	ck_assert_str_eq(r.config.nvme_path, "/data");
	ck_assert_uint_eq(r.config.nvme_depth, fresh.nvme_depth);
	reading_release(&r);
}
END_TEST

/* A value that was read before survives a later text's mistake, not the default. */
START_TEST(a_mistake_keeps_the_value_from_before)
{
	struct reading r = read_text("l1: {capacity: 2GiB, policy: lru}\n"
				     "control: {breaker_open: 1s, breaker_open_max: 2s}\n");
	static const char later[] = "l1: {capacity: nonsense, policy: nonsense}\n"
				    "control: {breaker_open: 10s}\n";
	char *report = NULL;

	ck_assert_int_eq(r.status, KVT_OK);
	ck_assert_int_eq(
		kvt_config_read(&r.config, "b", later, strlen(later), &report), KVT_EINVAL);
	ck_assert_uint_eq(r.config.l1_capacity, UINT64_C(2) << 30);
	ck_assert_str_eq(r.config.l1_policy, "lru");
	ck_assert_uint_eq(r.config.breaker_open_ns, UINT64_C(1000000000));
	ck_assert_uint_eq(r.config.breaker_open_max_ns, UINT64_C(2000000000));
	kvt_text_free(report);
	reading_release(&r);
}
END_TEST

START_TEST(a_flood_is_counted)
{
	char text[8192];
	size_t used = 0;
	struct reading r;

	for (int i = 0; i < 300; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "zzzzzzz%d: 1\n", i);
	r = read_text(text);
	ck_assert_int_eq(r.status, KVT_EINVAL);
	ck_assert_uint_eq(r.lines, 101);
	ck_assert_ptr_nonnull(strstr(r.report, "200 more mistakes"));
	reading_release(&r);
}
END_TEST

START_TEST(too_long_a_text)
{
	size_t len = KVT_SETTINGS_MAX_BYTES + 1;
	char *text = malloc(len);
	struct reading r;

	ck_assert_ptr_nonnull(text);
	memset(text, ' ', len);
	r = read_bytes(text, len);
	ck_assert_int_eq(r.status, KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(r.report, "more than 1048576 bytes"));
	reading_release(&r);
	free(text);
}
END_TEST

/* What kvt_open reports about a struct that a C program filled. */
START_TEST(a_struct_filled_wrong)
{
	struct kvt_config config, good;
	char *report = NULL;

	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = 5;
	config.l1_staging_share = 0.0 / 0.0;
	config.l1_policy = "nothing";
	config.nvme_io = NULL;
	config.nvme_depth = 64;
	config.threads = 7;
	config.breaker_open_max_ns = 1000000;
	ck_assert_int_eq(kvt_settings_check(&config, &good, &report), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(report, "l1.capacity: found `5`, expected auto, or 1MiB"));
	ck_assert_ptr_nonnull(strstr(report, "l1.staging_share: found `"));
	ck_assert_ptr_nonnull(strstr(report, "l1.policy: found `nothing`, expected one of"));
	ck_assert_ptr_nonnull(strstr(report, "threads: found"));
	ck_assert_ptr_nonnull(strstr(report, "control.breaker_open_max: found less"));
	ck_assert_uint_eq(good.l1_capacity, 0);
	ck_assert_double_eq(good.l1_staging_share, 0.05);
	ck_assert_str_eq(good.l1_policy, "default");
	ck_assert_str_eq(good.nvme_io, "auto");
	ck_assert_uint_eq(good.nvme_depth, 64);
	ck_assert_uint_eq(good.threads, KVT_THREADS_OWN);
	kvt_text_free(report);
	ck_assert_int_eq(kvt_settings_check(&good, &config, &report), KVT_OK);
	ck_assert_ptr_null(report);
	good.abi = KVT_ABI + 1;
	ck_assert_int_eq(kvt_settings_check(&good, &config, &report), KVT_ENOTSUP);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("mistakes");

	tcase_add_loop_test(tc, one_mistake, 0, sizeof(mistakes) / sizeof(mistakes[0]));
	tcase_add_test(tc, the_rest_applies);
	tcase_add_test(tc, a_mistake_keeps_the_value_from_before);
	tcase_add_test(tc, a_flood_is_counted);
	tcase_add_test(tc, too_long_a_text);
	tcase_add_test(tc, a_struct_filled_wrong);
	return run_tcase("cache-settings-mistakes", tc);
}
