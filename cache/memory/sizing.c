/*
 * sizing.c - computes how much of a machine's memory and disk a cache takes.
 *
 * A cache takes half of the available memory: the other half is for the engine that loads its
 * weights through the page cache, for its buffers, and for neighbours that grow. Available is the
 * memory that the kernel could give out without swapping, or the room under the cgroup's limit,
 * whichever is less: in a container the former is the whole host's.
 *
 * Ranks: each of the R ranks of an engine takes 1/(2R) of the memory that the first of them found.
 * A rank that opens after S others finds (2R - S)/(2R) of that memory left, and takes 1/(2R - S) of
 * it. The same holds for shares other than half. Later engines take half of the remaining memory in
 * the same way, so that all together never take more than there was.
 *
 * A store that is opened again finds its own files on the disk. Their bytes count as free, or the
 * store would shrink with every restart.
 */
#include "memory/sizing.h"

#include <stdio.h>
#include <string.h>

#define MIB     ((uint64_t)1 << 20)
#define UNKNOWN (256 * MIB) /* size if the machine cannot be measured */
/* part of the available memory that is left for an engine in any case */
#define LEAST   (256 * MIB)

/* Rounds to whole MiB, so that any page size divides the result. */
static uint64_t whole(uint64_t bytes)
{
	return bytes / MIB * MIB;
}

static double gib(uint64_t bytes)
{
	return (double)bytes / (double)(1024 * MIB);
}

static uint32_t ranks_of(const struct kvt_machine *m)
{
	return m->ranks > 1 ? m->ranks : 1;
}

/* Returns how many siblings have taken their parts. */
static uint32_t served(const struct kvt_machine *m)
{
	return m->siblings < ranks_of(m) ? m->siblings : ranks_of(m) - 1;
}

/* Writes the reason of a size, such as "half of 12.5 GiB of memory available, for 4 ranks; 2 other
 * caches are open here". share: "half of"; of: bytes; what: which memory. */
static void tell(const struct kvt_machine *m, char why[KVT_REASON_BYTES], const char *share,
	uint64_t of, const char *what)
{
	size_t n = (size_t)snprintf(why, KVT_REASON_BYTES, "%s of %.1f GiB %s", share, gib(of), what);

	if (ranks_of(m) > 1 && n < KVT_REASON_BYTES)
		n += (size_t)snprintf(why + n, KVT_REASON_BYTES - n, ", for %u ranks", ranks_of(m));
	if (m->others > 0 && n < KVT_REASON_BYTES)
		snprintf(why + n, KVT_REASON_BYTES - n, "; %u other cache%s open here", m->others,
			m->others == 1 ? " is" : "s are");
}

/* Returns one rank's part of the share `share` of the memory that was available before its siblings
 * took theirs. *all: that memory. */
static uint64_t part_of(const struct kvt_machine *m, uint64_t available, double share, uint64_t *all)
{
	double part = (double)available * share / (ranks_of(m) - share * served(m));

	*all = (uint64_t)(part * ranks_of(m) / share + 0.5);
	return (uint64_t)(part + 0.5);
}

static uint64_t size_of_memory(const struct kvt_machine *m, char why[KVT_REASON_BYTES])
{
	uint64_t room = m->cgroup_limit > m->cgroup_used ? m->cgroup_limit - m->cgroup_used : 0;
	bool by_cgroup =
		m->cgroup_limit > 0 && (m->memory_available == 0 || room < m->memory_available);
	uint64_t available = by_cgroup ? room : m->memory_available, left, all, part;
	uint64_t least = (available / 2 < LEAST ? available / 2 : LEAST) / ranks_of(m);

	if (m->cgroup_limit == 0 && m->memory_total == 0 && m->memory_available == 0) {
		snprintf(why, KVT_REASON_BYTES, "the machine's memory could not be read");
		return UNKNOWN;
	}
	left = available > m->untouched ? available - m->untouched : 0;
	part = part_of(m, left, 0.5, &all);
	tell(m, why, "half", all,
		by_cgroup ? "left under the cgroup's memory limit" : "of memory available");
	return whole(part > least ? part : least);
}

uint64_t kvt_size_l1(const struct kvt_machine *m, const char *backing, char why[KVT_REASON_BYTES])
{
	uint64_t bytes, shared, all;

	if (strcmp(backing, "hugetlb") == 0 && m->hugetlb_free > 0) {
		bytes = whole(part_of(m, m->hugetlb_free, 1, &all));
		tell(m, why, "all", all, "of free huge pages");
		return bytes;
	}
	bytes = size_of_memory(m, why);
	if (strncmp(backing, "shm:", 4) != 0)
		return bytes;
	shared = whole(part_of(m, m->shm_free, 0.9, &all));
	if (m->shm_total == 0) {
		snprintf(why, KVT_REASON_BYTES, "there is no /dev/shm");
		return 0;
	}
	if (shared < bytes) {
		tell(m, why, "nine tenths", all, "free in /dev/shm");
		bytes = shared;
	}
	return bytes;
}

uint64_t kvt_size_cut(
	const struct kvt_machine *m, const char *backing, uint64_t bytes, char why[KVT_REASON_BYTES])
{
	uint64_t taken = m->cgroup_used + m->untouched;
	uint64_t left = m->cgroup_limit > taken ? m->cgroup_limit - taken : 0;
	uint64_t most = whole(left / 10 * 9);

	if (m->cgroup_limit == 0 || strcmp(backing, "anon") != 0 || bytes <= left)
		return bytes;
	tell(m, why, "nine tenths", left, "left under the cgroup's memory limit");
	return most > MIB ? most : MIB;
}

bool kvt_size_fits(const struct kvt_machine *m, const char *backing, uint64_t bytes, uint64_t there,
	char why[KVT_REASON_BYTES])
{
	uint64_t left = m->cgroup_limit > m->cgroup_used ? m->cgroup_limit - m->cgroup_used : 0;
	uint64_t more = bytes > there ? bytes - there : 0;

	if (m->memory_total != 0 && bytes > m->memory_total)
		snprintf(why, KVT_REASON_BYTES, "this machine has %.4g GiB of memory",
			gib(m->memory_total));
	else if (m->cgroup_limit != 0 && more > left)
		snprintf(why, KVT_REASON_BYTES, "the cgroup's limit of %.4g GiB leaves %.4g GiB",
			gib(m->cgroup_limit), gib(left));
	else if (strncmp(backing, "shm:", 4) == 0 && m->shm_total == 0)
		snprintf(why, KVT_REASON_BYTES, "there is no /dev/shm");
	else if (strncmp(backing, "shm:", 4) == 0 && more > m->shm_free)
		snprintf(why, KVT_REASON_BYTES, "%.4g GiB are free in /dev/shm", gib(m->shm_free));
	else if (strcmp(backing, "hugetlb") == 0 && more > m->hugetlb_free)
		snprintf(why, KVT_REASON_BYTES,
			"%.4g GiB of huge pages are free: ordinary ones would be taken",
			gib(m->hugetlb_free));
	else
		return true;
	return false;
}

uint64_t kvt_size_nvme(const struct kvt_machine *m, char why[KVT_REASON_BYTES])
{
	uint64_t room = m->disk_free + m->disk_ours, keep = m->disk_total / 20;
	uint64_t share = room / 10 * 8, rest = room > keep ? room - keep : 0;

	if (m->disk_total == 0) {
		snprintf(why, KVT_REASON_BYTES, "the disk's size could not be read");
		return 0;
	}
	if (rest < share) {
		snprintf(why, KVT_REASON_BYTES,
			"%.1f GiB free or ours on the disk, less its last twentieth", gib(room));
		return whole(rest);
	}
	snprintf(why, KVT_REASON_BYTES, "eight tenths of %.1f GiB free or ours on the disk", gib(room));
	return whole(share);
}
