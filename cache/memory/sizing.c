/*
 * sizing.c - how much of a machine a cache takes.
 *
 * Half of what is available now: the other half is for the engine that loads its weights through the
 * page cache, for its own buffers, and for neighbours that grow. What is available is what the kernel
 * says could be handed out without swapping, or the room under the cgroup's limit, whichever is less:
 * in a container the first of them is the whole host's.
 *
 * A store that is opened again finds its own files on the disk. What they take counts as free, or
 * its size would shrink with every restart.
 */
#include "memory/sizing.h"

#include <stdio.h>
#include <string.h>

#define MIB     ((uint64_t)1 << 20)
#define UNKNOWN (256 * MIB) /* where nothing can be found out */

/* Whole MiB, so that any page size divides it. */
static uint64_t whole(uint64_t bytes)
{
	return bytes / MIB * MIB;
}

static double gib(uint64_t bytes)
{
	return (double)bytes / (double)(1024 * MIB);
}

/* "half of 12.5 GiB that ..." */
static void tell(char why[KVT_REASON_BYTES], const char *share, uint64_t of, const char *what)
{
	snprintf(why, KVT_REASON_BYTES, "%s of %.1f GiB %s", share, gib(of), what);
}

static uint64_t size_of_memory(const struct kvt_machine *m, char why[KVT_REASON_BYTES])
{
	uint64_t room = m->cgroup_limit > m->cgroup_used ? m->cgroup_limit - m->cgroup_used : 0;
	bool by_cgroup =
		m->cgroup_limit > 0 && (m->memory_available == 0 || room < m->memory_available);
	uint64_t available = by_cgroup ? room : m->memory_available;

	if (m->cgroup_limit == 0 && m->memory_total == 0 && m->memory_available == 0) {
		snprintf(why, KVT_REASON_BYTES, "the machine's memory could not be read");
		return UNKNOWN;
	}
	if (by_cgroup)
		tell(why, "half", available, "left under the cgroup's memory limit");
	else
		tell(why, "half", available, "of memory available");
	return whole(available / 2);
}

uint64_t kvt_size_l1(const struct kvt_machine *m, const char *backing, char why[KVT_REASON_BYTES])
{
	uint64_t bytes, shared;

	if (strcmp(backing, "hugetlb") == 0 && m->hugetlb_free > 0) {
		tell(why, "all", m->hugetlb_free, "of free huge pages");
		return whole(m->hugetlb_free);
	}
	bytes = size_of_memory(m, why);
	if (strncmp(backing, "shm:", 4) != 0)
		return bytes;
	shared = whole(m->shm_free / 10 * 9);
	if (m->shm_total == 0) {
		snprintf(why, KVT_REASON_BYTES, "there is no /dev/shm");
		return 0;
	}
	if (shared < bytes) {
		tell(why, "nine tenths", m->shm_free, "free in /dev/shm");
		bytes = shared;
	}
	return bytes;
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
	tell(why, "eight tenths", room, "free or ours on the disk");
	return whole(share);
}
