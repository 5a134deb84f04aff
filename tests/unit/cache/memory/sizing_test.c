/*
 * sizing_test.c - machines and containers made of files, and what is decided for each.
 */
#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/sizing.h"
#include "tests/unit/suite.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static char root[256];

static void make_root(void)
{
	const char *folder = getenv("TMPDIR");

	snprintf(root, sizeof(root), "%s/kvt-sizing-XXXXXX", folder != NULL ? folder : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static int remove_it(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_root(void)
{
	ck_assert_int_eq(nftw(root, remove_it, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* A file under the root, with the folders above it. */
static void write_file(const char *name, const char *text)
{
	char path[1024];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, name);
	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void write_meminfo(void)
{
	write_file("/proc/meminfo", "MemTotal:       33554432 kB\n"
				    "MemFree:         1000000 kB\n"
				    "MemAvailable:   16777216 kB\n"
				    "HugePages_Total:     520\n"
				    "HugePages_Free:      512\n"
				    "HugePages_Rsvd:       12\n"
				    "Hugepagesize:       2048 kB\n");
}

static struct kvt_machine read_machine(const char *folder)
{
	struct kvt_machine m;

	memset(&m, 0xff, sizeof(m));
	kvt_machine_read(root, folder, &m);
	return m;
}

START_TEST(test_empty_root)
{
	struct kvt_machine m = read_machine(NULL);

	ck_assert_uint_eq(m.memory_total, 0);
	ck_assert_uint_eq(m.memory_available, 0);
	ck_assert_uint_eq(m.cgroup_limit, 0);
	ck_assert_uint_eq(m.shm_total, 0);
	ck_assert_uint_eq(m.disk_total, 0);
	ck_assert_uint_eq(m.disk_ours, 0);
	ck_assert_uint_eq(m.hugetlb_free, 0);
	ck_assert_uint_eq(m.numa_nodes, 0);
}
END_TEST

START_TEST(test_bare_machine)
{
	struct kvt_machine m;

	write_meminfo();
	write_file("/proc/self/cgroup", "0::/\n");
	write_file("/sys/devices/system/node/node0/cpulist", "0-3\n");
	write_file("/sys/devices/system/node/node1/cpulist", "4-7\n");
	write_file("/sys/devices/system/node/online", "0-1\n");
	m = read_machine("");
	ck_assert_uint_eq(m.memory_total, 32 * GIB);
	ck_assert_uint_eq(m.memory_available, 16 * GIB);
	ck_assert_uint_eq(m.hugetlb_free, 1000 * MIB);
	ck_assert_uint_eq(m.cgroup_limit, 0);
	ck_assert_uint_eq(m.numa_nodes, 2);
}
END_TEST

/* Version 2: the ancestor with the least room counts, also where a child's own limit is smaller. */
START_TEST(test_cgroup_2)
{
	struct kvt_machine m;

	write_meminfo();
	write_file("/proc/self/cgroup", "0::/pods/pod7/engine\n");
	write_file("/sys/fs/cgroup/pods/pod7/engine/memory.max", "8589934592\n");
	write_file("/sys/fs/cgroup/pods/pod7/engine/memory.current", "3221225472\n");
	write_file("/sys/fs/cgroup/pods/pod7/engine/memory.stat",
		"anon 100\ninactive_file 1073741824\nactive_file 7\n");
	write_file("/sys/fs/cgroup/pods/pod7/memory.max", "max\n");
	m = read_machine(NULL);
	ck_assert_uint_eq(m.cgroup_limit, 8 * GIB);
	ck_assert_uint_eq(m.cgroup_used, 2 * GIB);
	write_file("/sys/fs/cgroup/pods/memory.max", "17179869184\n");
	write_file("/sys/fs/cgroup/pods/memory.current", "16106127360\n");
	m = read_machine(NULL);
	ck_assert_uint_eq(m.cgroup_limit, 16 * GIB);
	ck_assert_uint_eq(m.cgroup_used, 15 * GIB);
}
END_TEST

/* The host's path in /proc, the container's own group as the mount's root. */
START_TEST(test_cgroup_2_in_container)
{
	struct kvt_machine m;

	write_meminfo();
	write_file("/proc/self/cgroup", "0::/system.slice/docker-0123.scope\n");
	write_file("/sys/fs/cgroup/memory.max", "4294967296\n");
	write_file("/sys/fs/cgroup/memory.current", "5368709120\n");
	m = read_machine(NULL);
	ck_assert_uint_eq(m.cgroup_limit, 4 * GIB);
	ck_assert_uint_eq(m.cgroup_used, 5 * GIB);
	ck_assert_uint_eq(kvt_size_l1(&m, "anon", (char[KVT_REASON_BYTES]){0}), 0);
}
END_TEST

START_TEST(test_cgroup_1)
{
	struct kvt_machine m;

	write_meminfo();
	write_file("/proc/self/cgroup", "11:cpu,cpuacct:/docker/ab\n5:memory:/docker/"
					"ab\n1:name=systemd:/docker/ab\n0::/other\n");
	write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	write_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "30000000000\n");
	m = read_machine(NULL);
	ck_assert_uint_eq(m.cgroup_limit, 0); /* that is "none" */
	write_file("/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "2147483648\n");
	write_file("/sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes", "1073741824\n");
	write_file("/sys/fs/cgroup/memory/docker/ab/memory.stat",
		"inactive_file 1\ntotal_inactive_file 536870912\n");
	m = read_machine(NULL);
	ck_assert_uint_eq(m.cgroup_limit, 2 * GIB);
	ck_assert_uint_eq(m.cgroup_used, 512 * MIB);
}
END_TEST

START_TEST(test_nonsense)
{
	struct kvt_machine m;

	write_file("/proc/meminfo", "MemTotal: many kB\nMemAvailable: -5 kB\nHugePages_Free: 5\n"
				    "HugePages_Rsvd: 9\nHugepagesize: 99999999999999999999 kB\n");
	write_file("/proc/self/cgroup", "\nxx\n0:\n0::/../../etc\n7:memory\n");
	write_file("/sys/fs/cgroup/memory.max", "99999999999999999999999\n");
	m = read_machine("relative/folder/that/is/not/there");
	ck_assert_uint_eq(m.memory_total, 0);
	ck_assert_uint_eq(m.memory_available, 0);
	ck_assert_uint_eq(m.hugetlb_free, 0);
	ck_assert_uint_eq(m.cgroup_limit, 0);
	ck_assert_uint_gt(m.disk_total, 0);
}
END_TEST

START_TEST(test_disk)
{
	char folder[300], text[65537];
	struct kvt_machine m;
	struct stat st;
	uint64_t expected;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	snprintf(folder, sizeof(folder), "%s/cache", root);
	m = read_machine(folder); /* not there yet */
	ck_assert_uint_gt(m.disk_total, 0);
	ck_assert_uint_gt(m.disk_free, 0);
	ck_assert_uint_eq(m.disk_ours, 0);
	write_file("/cache/0123/0/segment", text);
	write_file("/cache/0123/log", text);
	write_file("/elsewhere", text);
	snprintf(folder, sizeof(folder), "%s/cache/0123/log", root);
	ck_assert_int_eq(stat(folder, &st), 0);
	expected = 2 * (uint64_t)st.st_blocks * 512;
	snprintf(folder, sizeof(folder), "%s/cache", root);
	ck_assert_int_eq(symlink("/", strcat(strcpy(text, folder), "/loop")), 0);
	m = read_machine(folder);
	ck_assert_uint_eq(m.disk_ours, expected);
}
END_TEST

START_TEST(test_size_of_memory)
{
	struct kvt_machine m = {.memory_total = 64 * GIB, .memory_available = 40 * GIB};
	char why[KVT_REASON_BYTES];

	ck_assert_uint_eq(kvt_size_l1(&m, "anon", why), 20 * GIB);
	ck_assert_ptr_nonnull(strstr(why, "40.0 GiB of memory available"));
	m.cgroup_limit = 100 * GIB;
	ck_assert_uint_eq(kvt_size_l1(&m, "anon", why), 20 * GIB);
	m.cgroup_limit = 16 * GIB;
	m.cgroup_used = 4 * GIB;
	ck_assert_uint_eq(kvt_size_l1(&m, "anon", why), 6 * GIB);
	ck_assert_ptr_nonnull(strstr(why, "cgroup"));
	ck_assert_uint_eq(kvt_size_l1(&m, "hugetlb", why), 6 * GIB); /* none are free */
	m.hugetlb_free = 10 * GIB;
	ck_assert_uint_eq(kvt_size_l1(&m, "hugetlb", why), 10 * GIB);
	ck_assert_ptr_nonnull(strstr(why, "huge pages"));
	m = (struct kvt_machine){.memory_total = 64 * GIB};
	ck_assert_uint_eq(kvt_size_l1(&m, "anon", why), 0);
	m = (struct kvt_machine){.cgroup_limit = 2 * GIB};
	ck_assert_uint_eq(kvt_size_l1(&m, "anon", why), GIB);
	m = (struct kvt_machine){0};
	ck_assert_uint_gt(kvt_size_l1(&m, "anon", why), 0);
	ck_assert_ptr_nonnull(strstr(why, "could not be read"));
}
END_TEST

START_TEST(test_what_fits)
{
	struct kvt_machine m = {
		.memory_total = 64 * GIB, .shm_total = 32 * GIB, .shm_free = 8 * GIB};
	char why[KVT_REASON_BYTES];

	ck_assert(kvt_size_fits(&m, "anon", 64 * GIB, 0, why));
	ck_assert(!kvt_size_fits(&m, "anon", 64 * GIB + 1, 0, why));
	ck_assert_str_eq(why, "this machine has 64 GiB of memory");
	ck_assert(!kvt_size_fits(&m, "shm:x", 9 * GIB, 0, why));
	ck_assert_str_eq(why, "8 GiB are free in /dev/shm");
	ck_assert(kvt_size_fits(&m, "shm:x", 9 * GIB, GIB, why)); /* of which one is there */
	m.hugetlb_free = GIB / 2;
	ck_assert(!kvt_size_fits(&m, "hugetlb", GIB, 0, why));
	ck_assert_str_eq(why, "0.5 GiB of huge pages are free: ordinary ones would be taken");
	m.cgroup_limit = 16 * GIB;
	m.cgroup_used = 12 * GIB;
	ck_assert(kvt_size_fits(&m, "anon", 4 * GIB, 0, why));
	ck_assert(!kvt_size_fits(&m, "anon", 5 * GIB, 0, why));
	ck_assert_str_eq(why, "the cgroup's limit of 16 GiB leaves 4 GiB");
	m = (struct kvt_machine){.memory_total = GIB};
	ck_assert(!kvt_size_fits(&m, "shm:x", 1, 0, why));
	ck_assert_str_eq(why, "there is no /dev/shm");
}
END_TEST

START_TEST(test_size_of_shared_memory)
{
	struct kvt_machine m = {.memory_total = 64 * GIB, .memory_available = 40 * GIB};
	char why[KVT_REASON_BYTES];

	ck_assert_uint_eq(kvt_size_l1(&m, "shm:x", why), 0);
	ck_assert_ptr_nonnull(strstr(why, "/dev/shm"));
	m.shm_total = 32 * GIB;
	m.shm_free = 30 * GIB;
	ck_assert_uint_eq(kvt_size_l1(&m, "shm:x", why), 20 * GIB);
	m.shm_free = 10 * GIB;
	ck_assert_uint_eq(kvt_size_l1(&m, "shm:x", why), 9 * GIB);
	ck_assert_ptr_nonnull(strstr(why, "10.0 GiB free in /dev/shm"));
	m.shm_total = 64 * MIB; /* a container's default */
	m.shm_free = 64 * MIB;
	ck_assert_uint_eq(kvt_size_l1(&m, "shm:x", why), 57 * MIB);
}
END_TEST

START_TEST(test_size_of_disk)
{
	struct kvt_machine m = {.disk_total = 1000 * GIB, .disk_free = 500 * GIB};
	char why[KVT_REASON_BYTES];
	uint64_t before;

	before = kvt_size_nvme(&m, why);
	ck_assert_uint_eq(before, 400 * GIB);
	/* Filled and opened again: the same size. */
	m.disk_free = 100 * GIB;
	m.disk_ours = 400 * GIB;
	ck_assert_uint_eq(kvt_size_nvme(&m, why), before);
	m.disk_ours = 0;
	m.disk_free = 60 * GIB;
	ck_assert_uint_eq(kvt_size_nvme(&m, why), 10 * GIB);
	ck_assert_ptr_nonnull(strstr(why, "twentieth"));
	m.disk_free = 40 * GIB;
	ck_assert_uint_eq(kvt_size_nvme(&m, why), 0);
	m = (struct kvt_machine){0};
	ck_assert_uint_eq(kvt_size_nvme(&m, why), 0);
	ck_assert_ptr_nonnull(strstr(why, "could not be read"));
}
END_TEST

/* Four of each took half of what was free each, as if it were alone. */
START_TEST(test_ranks_have_equal_parts)
{
	struct kvt_machine m = {.memory_total = 64 * GIB,
		.memory_available = 40 * GIB,
		.hugetlb_free = 8 * GIB,
		.shm_total = 64 * GIB,
		.shm_free = 10 * GIB,
		.ranks = 4};
	char why[KVT_REASON_BYTES];

	/* In whichever order they open, and however much those before have touched: an eighth. */
	for (uint32_t i = 0; i < 4; i++) {
		m.siblings = m.others = i;
		m.untouched = i / 2 * 5 * GIB;
		m.memory_available = 40 * GIB - (i - i / 2) * 5 * GIB;
		ck_assert_uint_eq(kvt_size_l1(&m, "anon", why), 5 * GIB);
		ck_assert_ptr_nonnull(strstr(why, "half of 40.0 GiB of memory available, for 4 ranks"));
		m.shm_free = (40 - i * 9) * GIB / 4;
		ck_assert_uint_eq(kvt_size_l1(&m, "shm:x", why), 9 * GIB / 4);
		m.hugetlb_free = (8 - 2 * i) * GIB; /* taken when it is mapped */
		ck_assert_uint_eq(kvt_size_l1(&m, "hugetlb", why), 2 * GIB);
	}
	ck_assert_ptr_nonnull(strstr(why, "3 other caches are open here"));
}
END_TEST

/* However many engines of however many ranks come: together they never have more than was free. */
START_TEST(test_engines_that_come_later_take_of_what_is_left)
{
	for (uint32_t ranks = 1; ranks <= 8; ranks++) {
		struct kvt_machine m = {.memory_total = 100 * GIB,
			.cgroup_limit = 64 * GIB,
			.memory_available = 90 * GIB,
			.ranks = ranks};
		char why[KVT_REASON_BYTES];
		uint64_t all = 0;

		for (m.others = 0; m.others < 64; m.others++) {
			uint64_t bytes = kvt_size_l1(&m, "anon", why), least = 256 * MIB / ranks;

			m.siblings = m.others;
			if (bytes <= least + MIB)
				break; /* what an engine has in any case */
			all += bytes;
			m.untouched = all;
		}
		ck_assert_uint_le(all, 64 * GIB);
		ck_assert_uint_gt(m.others, ranks);
	}
}
END_TEST

/* Whatever the machine: no more than it has, whole MiB, and a reason. */
START_TEST(test_any_machine)
{
	uint64_t random = 4711;

	for (int i = 0; i < 20000; i++) {
		uint64_t values[9];
		char why[KVT_REASON_BYTES] = "";
		struct kvt_machine m;
		uint64_t bytes;

		for (int k = 0; k < 9; k++) {
			random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
			values[k] = (random >> 20) >> (random >> 59);
			if (random >> 33 & 1)
				values[k] = 0;
		}
		m = (struct kvt_machine){.memory_total = values[0],
			.memory_available = values[1],
			.cgroup_limit = values[2],
			.cgroup_used = values[3],
			.shm_total = values[4],
			.shm_free = values[5],
			.disk_total = values[6],
			.disk_free = values[7],
			.hugetlb_free = values[8],
			.ranks = (uint32_t)(random >> 40) % 9,
			.siblings = (uint32_t)(random >> 44) % 9,
			.untouched = random >> 30};
		bytes = kvt_size_l1(&m, i % 2 == 0 ? "anon" : "shm:x", why);
		ck_assert_uint_eq(bytes % MIB, 0);
		ck_assert(why[0] != '\0');
		if (m.memory_available > 0)
			ck_assert_uint_le(bytes, m.memory_available);
		if (m.cgroup_limit > 0)
			ck_assert_uint_le(bytes, m.cgroup_limit);
		bytes = kvt_size_nvme(&m, why);
		ck_assert_uint_le(bytes, m.disk_free);
		ck_assert_uint_eq(bytes % MIB, 0);
	}
}
END_TEST

/* This machine: what it says hangs together. */
START_TEST(test_here)
{
	char why[KVT_REASON_BYTES] = "";
	struct kvt_machine m;

	kvt_machine_read("", "/", &m);
	ck_assert_uint_gt(m.memory_total, 0);
	ck_assert_uint_le(m.memory_available, m.memory_total);
	ck_assert_uint_gt(m.disk_total, 0);
	ck_assert_uint_le(kvt_size_l1(&m, "anon", why), m.memory_total);
	ck_assert(why[0] != '\0');
}
END_TEST


/* A configured size that the cgroup would kill for is cut; all else is as it was given. */
START_TEST(test_too_much_for_the_cgroup)
{
	const uint64_t gib = 1ull << 30;
	struct kvt_machine m = {.memory_total = 64 * gib, .cgroup_limit = 16 * gib, .cgroup_used = 5 * gib, .untouched = gib};
	char why[KVT_REASON_BYTES] = "";

	ck_assert_uint_eq(kvt_size_cut(&m, "anon", 10 * gib, why), 10 * gib);
	ck_assert_str_eq(why, "");
	ck_assert_uint_eq(kvt_size_cut(&m, "anon", 11 * gib, why), 9 * gib);
	ck_assert_str_eq(why, "nine tenths of 10.0 GiB left under the cgroup's memory limit");
	ck_assert_uint_eq(kvt_size_cut(&m, "shm:name", 11 * gib, why), 11 * gib);
	m.cgroup_used = 17 * gib;
	ck_assert_uint_eq(kvt_size_cut(&m, "anon", 11 * gib, why), 1 << 20);
	m.cgroup_limit = 0;
	ck_assert_uint_eq(kvt_size_cut(&m, "anon", 100 * gib, why), 100 * gib);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sizing");
	TCase *machines = tcase_create("machines"), *sizes = tcase_create("sizes");

	tcase_add_checked_fixture(machines, make_root, remove_root);
	tcase_add_test(machines, test_too_much_for_the_cgroup);
	tcase_add_test(machines, test_empty_root);
	tcase_add_test(machines, test_bare_machine);
	tcase_add_test(machines, test_cgroup_2);
	tcase_add_test(machines, test_cgroup_2_in_container);
	tcase_add_test(machines, test_cgroup_1);
	tcase_add_test(machines, test_nonsense);
	tcase_add_test(machines, test_disk);
	suite_add_tcase(suite, machines);
	tcase_add_test(sizes, test_size_of_memory);
	tcase_add_test(sizes, test_what_fits);
	tcase_add_test(sizes, test_size_of_shared_memory);
	tcase_add_test(sizes, test_size_of_disk);
	tcase_add_test(sizes, test_ranks_have_equal_parts);
	tcase_add_test(sizes, test_engines_that_come_later_take_of_what_is_left);
	tcase_add_test(sizes, test_any_machine);
	tcase_add_test(sizes, test_here);
	suite_add_tcase(suite, sizes);
	return run_suite(suite);
}
