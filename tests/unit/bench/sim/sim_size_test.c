/*
 * sim_size_test.c - sizes on kvsim's command line.
 */
#include <check.h>
#include <stdlib.h>

#include "bench/sim/sim_size.h"
#include "tests/unit/suite.h"

START_TEST(sizes_are_as_publications_write_them)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {{"20GB", 20000000000}, {"20 GB", 20000000000}, {"64GiB", UINT64_C(64) << 30},
		{"1.5TB", 1500000000000}, {"1.1 TB", 1100000000000}, {"0.5KiB", 512}, {"5.0GB", 5000000000},
		{"100MB", 100000000}, {"2MiB", 2097152}, {"8KB", 8000}, {"1TiB", UINT64_C(1) << 40},
		{"4096", 4096}, {"7B", 7}};
	uint64_t bytes;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_msg(kvb_parse_size(sizes[i].text, &bytes), "%s", sizes[i].text);
		ck_assert_msg(bytes == sizes[i].bytes, "%s: %llu", sizes[i].text,
			(unsigned long long)bytes);
	}
}
END_TEST

START_TEST(what_is_no_size_is_refused)
{
	static const char *const texts[] = {"", "GB", "20G", "20gb", "20Gb", "-1GB", "+1GB", " 1GB", "1  GB",
		"1GB ", "1e9", "0x10", "nan", "inf", "0", "0.4", "1.2.3GB", "9000000TiB", "20GB/s", "1 "};
	uint64_t bytes = 17;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_msg(!kvb_parse_size(texts[i], &bytes), "%s", texts[i]);
	ck_assert_uint_eq(bytes, 17);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("size");

	tcase_add_test(tcase, sizes_are_as_publications_write_them);
	tcase_add_test(tcase, what_is_no_size_is_refused);
	return run_tcase("sim_size", tcase);
}
