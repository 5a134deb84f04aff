/*
 * tenants_test.c - salts of tenants: the same for the same secret, tenant and salt, else different, and fit for vLLM.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/tenants.h"
#include "tests/unit/suite.h"

static char path[] = "/tmp/kvw-tenants-XXXXXX";

static void write_secret(const char *text)
{
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	ck_assert_int_eq(fclose(out), 0);
}

static struct kvw_tenants *make(const char *secret)
{
	struct kvw_tenants *tenants = NULL;

	write_secret(secret);
	ck_assert_int_eq(kvw_tenants_create(path, stderr, &tenants), KVW_OK);
	ck_assert(kvw_tenants_last(tenants));
	return tenants;
}

/* own NULL: none. In one of a few buffers that take turns. */
static const char *salt(const struct kvw_tenants *tenants, const char *tenant, const char *own)
{
	static char texts[8][KVW_TENANT_SALT + 1];
	static unsigned turn;
	char *text = texts[turn++ % 8];

	kvw_tenants_salt(tenants, kvw_slice_of(tenant), own != NULL, kvw_slice_of(own), text);
	text[KVW_TENANT_SALT] = '\0';
	ck_assert_uint_eq(strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
		KVW_TENANT_SALT);
	return text;
}

START_TEST(test_known_salts)
{
	struct kvw_tenants *tenants = make("0123456789abcdef0123456789abcdef");

	/* HMAC-SHA256, key SHA256 of the secret, of 01 00 0003 "red" and 01 01 0003 "red" "mine": by another program. */
	ck_assert_str_eq(salt(tenants, "red", NULL), "C5UpxyOMn8KrXOUemqEn_CoYrXL2Y48GIx6k-zdWkzI");
	ck_assert_str_eq(salt(tenants, "red", "mine"), "VtGzbxb-9JvmQUKDCmvD41Dt_cu69F8HqUamuF3bQI8");
	kvw_tenants_destroy(tenants);
}
END_TEST

START_TEST(test_what_differs_and_what_does_not)
{
	struct kvw_tenants *one = make("0123456789abcdef0123456789abcdef \r\n");
	struct kvw_tenants *same = make("0123456789abcdef0123456789abcdef");
	struct kvw_tenants *other = make("0123456789abcdef0123456789abcdeF");

	ck_assert_str_eq(salt(one, "red", "x"), salt(same, "red", "x"));
	ck_assert_str_ne(salt(one, "red", "x"), salt(other, "red", "x"));
	ck_assert_str_ne(salt(one, "red", "x"), salt(one, "redx", ""));
	ck_assert_str_ne(salt(one, "red", ""), salt(one, "red", NULL));
	ck_assert_str_ne(salt(one, "red", NULL), salt(one, "blue", NULL));
	ck_assert_uint_eq(kvw_tenants_number(one, KVW_SLICE("red")), kvw_tenants_number(same, KVW_SLICE("red")));
	ck_assert_uint_ne(kvw_tenants_number(one, KVW_SLICE("red")), kvw_tenants_number(one, KVW_SLICE("blue")));
	ck_assert_uint_ne(kvw_tenants_number(one, KVW_SLICE("")), 0);
	kvw_tenants_destroy(one);
	kvw_tenants_destroy(same);
	kvw_tenants_destroy(other);
}
END_TEST

START_TEST(test_without_a_file_each_process_has_its_own)
{
	struct kvw_tenants *one, *two;

	ck_assert_int_eq(kvw_tenants_create("", stderr, &one), KVW_OK);
	ck_assert_int_eq(kvw_tenants_create("", stderr, &two), KVW_OK);
	ck_assert(!kvw_tenants_last(one));
	ck_assert_str_ne(salt(one, "red", NULL), salt(two, "red", NULL));
	kvw_tenants_destroy(one);
	kvw_tenants_destroy(two);
}
END_TEST

START_TEST(test_bad_secrets)
{
	struct kvw_tenants *tenants = NULL;
	char *said = NULL;
	size_t len = 0;
	FILE *errors = open_memstream(&said, &len);

	write_secret("too short to be one\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n");
	ck_assert_int_eq(kvw_tenants_create(path, errors, &tenants), KVW_EINVAL);
	ck_assert_int_eq(kvw_tenants_create("/nowhere/x", errors, &tenants), KVW_EIO);
	ck_assert_ptr_null(tenants);
	fclose(errors);
	ck_assert_ptr_nonnull(strstr(said, "found 19 bytes, expected at least 32 random ones\n"));
	ck_assert_ptr_nonnull(strstr(said, "/nowhere/x: auth.tenant_secret_file cannot be read: "));
	ck_assert_ptr_null(strstr(said, "too short"));
	free(said);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("tenants");
	int fd = mkstemp(path), failed;

	if (fd < 0)
		return 1;
	close(fd);
	tcase_add_test(tcase, test_known_salts);
	tcase_add_test(tcase, test_what_differs_and_what_does_not);
	tcase_add_test(tcase, test_without_a_file_each_process_has_its_own);
	tcase_add_test(tcase, test_bad_secrets);
	failed = run_tcase("tenants", tcase);
	unlink(path);
	return failed;
}
