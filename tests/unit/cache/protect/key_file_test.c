/*
 * key_file_test.c - the file of master keys: what is read, what is refused and in which words.
 */
#include "helpers.h"
#include "protect/key_file.h"
#include "tests/unit/suite.h"

static struct kvt_surroundings surroundings;
static struct logged logged;
static struct kvt_secrets secrets;
static struct kvt_masters masters;
static char *report;

static void setup(void)
{
	surroundings_start(&surroundings, &logged);
	kvt_secrets_init(&secrets);
	masters = (struct kvt_masters){0};
	report = NULL;
}

static void teardown(void)
{
	kvt_masters_finish(&masters, &secrets);
	kvt_secrets_finish(&secrets);
	kvt_text_free(report);
}

static enum kvt_status read_as(const char *text, mode_t mode)
{
	char path[64];
	enum kvt_status status;

	write_keys(text, mode, path);
	status = kvt_key_file_read(path, &surroundings, &secrets, &masters, &report);
	unlink(path);
	return status;
}

START_TEST(keys_are_read_in_both_forms)
{
	static const uint8_t first[4] = {0x00, 0x11, 0x22, 0x33};

	ck_assert_int_eq(read_as("# keys of store 1\n\n"
				 "30: " KEY_B "  # the newest\r\n"
				 "  2 : x\n",
				 0600),
		KVT_EINVAL); /* no blank before the colon */
	kvt_text_free(report);
	report = NULL;
	ck_assert_int_eq(read_as("# keys of store 1\n\n"
				 "30: " KEY_B "  # the newest\r\n"
				 "\t2:ABEiM0RVZneImaq7zN3u/wEjRWeJq83vASNFZ4mrze8=",
				 0600),
		KVT_OK);
	ck_assert_ptr_null(report);
	ck_assert_uint_eq(masters.count, 2);
	ck_assert_uint_eq(masters.items[0].id, 2);
	ck_assert_mem_eq(masters.items[0].key, first, sizeof(first));
	ck_assert_uint_eq(masters.items[0].key[31], 0xef);
	ck_assert_uint_eq(kvt_masters_newest(&masters)->id, 30);
	ck_assert_ptr_eq(kvt_masters_find(&masters, 30), masters.items[1].key);
	ck_assert_ptr_eq(kvt_masters_find(&masters, 2), masters.items[0].key);
	ck_assert_ptr_null(kvt_masters_find(&masters, 3));
	ck_assert_str_eq(logged.text, "");
}
END_TEST

struct mistake {
	const char *text;
	unsigned line; /* 0: of the file as a whole */
	const char *says;
};

static const struct mistake mistakes[] = {
	{"", 0, "found no key"},
	{"# nothing\n", 0, "found no key"},
	{"1 " KEY_A "\n", 1, "expected `ID: KEY`"},
	{KEY_A "\n", 1, "expected `ID: KEY`"},
	{"0: " KEY_A "\n", 1, "from 1 to 4294967295"},
	{"4294967296: " KEY_A "\n", 1, "from 1 to 4294967295"},
	{"99999999999999999999999: " KEY_A "\n", 1, "from 1 to 4294967295"},
	{"-1: " KEY_A "\n", 1, "from 1 to 4294967295"},
	{"1:\n", 1, "found no key after the id"},
	{"1: abc\n", 1, "64 hex digits or 44"},
	{"1: " KEY_A "0\n", 1, "64 hex digits or 44"},
	{"1: g0112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef\n", 1, "64 hex"},
	{"1: ABEiM0RVZneImaq7zN3u/wEjRWeJq83vASNFZ4mrze9=\n", 1, "64 hex"}, /* stray bits */
	{"1: ABEiM0RVZneImaq7zN3u/wEjRWeJq83vASNFZ4mrze8\n", 1, "64 hex"},
	{"\n1: " KEY_A "\n1: " KEY_B "\n", 3, "an id a second time"},
	{"1: " KEY_A "\n2: " KEY_A "\n", 2, "a key under a second id"},
	{"1: 0000000000000000000000000000000000000000000000000000000000000000\n", 1,
		"one byte repeated"},
};

START_TEST(one_mistake)
{
	const struct mistake *m = &mistakes[_i];
	char place[16] = "";

	ck_assert_msg(read_as(m->text, 0600) == KVT_EINVAL, "%s: accepted", m->text);
	ck_assert_ptr_nonnull(report);
	if (m->line != 0)
		snprintf(place, sizeof(place), ":%u: ", m->line);
	ck_assert_msg(strstr(report, place) != NULL, "%s: %s", m->text, report);
	ck_assert_msg(strstr(report, m->says) != NULL, "%s: %s", m->text, report);
	ck_assert_ptr_eq(strchr(report, '\n'), report + strlen(report) - 1);
	/* no key may appear in a log */
	ck_assert_ptr_null(strstr(report, "aabbcc"));
	ck_assert_ptr_null(strstr(report, "ABEiM"));
	ck_assert_uint_eq(masters.count, 0);
}
END_TEST

START_TEST(every_mistake_is_reported)
{
	ck_assert_int_eq(read_as("1: x\n2: " KEY_A "\n3; y\n", 0600), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(report, ":1: found no key"));
	ck_assert_ptr_nonnull(strstr(report, ":3: found something else"));
}
END_TEST

START_TEST(others_must_not_read_it)
{
	static const mode_t refused[] = {0604, 0602, 0660, 0620, 0606, 0601, 0666};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		ck_assert_int_eq(read_as("1: " KEY_A "\n", refused[i]), KVT_EINVAL);
		ck_assert_ptr_nonnull(strstr(report, "others may read or write"));
		kvt_text_free(report);
		report = NULL;
	}
	ck_assert_str_eq(logged.text, "");
	ck_assert_int_eq(read_as("1: " KEY_A "\n", 0640), KVT_OK);
	ck_assert_ptr_nonnull(strstr(logged.text, "can be read by its group"));
}
END_TEST

START_TEST(what_is_no_file)
{
	char path[64] = "/tmp/kvt-fifo-XXXXXX";

	ck_assert_int_eq(
		kvt_key_file_read("/nonexistent/k", &surroundings, &secrets, &masters, &report),
		KVT_EIO);
	ck_assert_ptr_nonnull(strstr(report, "/nonexistent/k: cannot be opened: No such file"));
	kvt_text_free(report);
	report = NULL;
	ck_assert_int_eq(
		kvt_key_file_read("/", &surroundings, &secrets, &masters, &report), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(report, "no regular file"));
	kvt_text_free(report);
	report = NULL;
	ck_assert_ptr_nonnull(mkdtemp(path));
	strcat(path, "/f");
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	/* it has no writer: this must not wait */
	ck_assert_int_eq(
		kvt_key_file_read(path, &surroundings, &secrets, &masters, &report), KVT_EINVAL);
	unlink(path);
	path[strlen(path) - 2] = '\0';
	rmdir(path);
}
END_TEST

START_TEST(too_long_a_file)
{
	size_t bytes = 200 * 1024;
	char *text = malloc(bytes + 1);

	ck_assert_ptr_nonnull(text);
	memset(text, '\n', bytes);
	text[bytes] = '\0';
	ck_assert_int_eq(read_as(text, 0600), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(report, "more than 128 KiB"));
	free(text);
}
END_TEST

START_TEST(too_many_keys)
{
	char *text = malloc(1100 * 80);
	size_t used = 0;

	ck_assert_ptr_nonnull(text);
	for (unsigned i = 1; i <= 1026; i++)
		used += (size_t)sprintf(text + used, "%u: %08x%056x\n", i, i, i + 1);
	ck_assert_int_eq(read_as(text, 0600), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(report, ":1025: found more than 1024 keys"));
	free(text);
}
END_TEST

/* Slots are zero when taken and wiped when given back. */
START_TEST(secrets_are_wiped)
{
	uint8_t *slots[5000];

	for (size_t i = 0; i < 5000; i++) {
		slots[i] = kvt_secret_take(&secrets);
		ck_assert_ptr_nonnull(slots[i]);
		for (size_t b = 0; b < KVT_SECRET_BYTES; b++)
			ck_assert_uint_eq(slots[i][b], 0);
		memset(slots[i], 0xA5, KVT_SECRET_BYTES);
	}
	for (size_t i = 0; i < 5000; i++) {
		kvt_secret_give(&secrets, slots[i]);
		/* the first bytes hold the list of free slots */
		for (size_t b = sizeof(void *); b < KVT_SECRET_BYTES; b++)
			ck_assert_uint_eq(slots[i][b], 0);
	}
	kvt_secret_give(&secrets, NULL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("key file");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, keys_are_read_in_both_forms);
	tcase_add_loop_test(tc, one_mistake, 0, sizeof(mistakes) / sizeof(mistakes[0]));
	tcase_add_test(tc, every_mistake_is_reported);
	tcase_add_test(tc, others_must_not_read_it);
	tcase_add_test(tc, what_is_no_file);
	tcase_add_test(tc, too_long_a_file);
	tcase_add_test(tc, too_many_keys);
	tcase_add_test(tc, secrets_are_wiped);
	return run_tcase("cache-protect-key-file", tc);
}
