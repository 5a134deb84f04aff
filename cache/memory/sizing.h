/*
 * sizing.h - computes how much memory and disk a cache may take if its size is not configured.
 *
 * Reads the cgroup's limit and use (v2 and v1), free memory, /dev/shm, the disk under a folder. The
 * functions that decide are pure, so that tests can pass any machine.
 */
#ifndef KVT_SIZING_H
#define KVT_SIZING_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

/* Resources of a machine (or a container). 0: unknown. */
struct kvt_machine {
	uint64_t memory_total, memory_available;
	uint64_t cgroup_limit, cgroup_used; /* limit 0: none */
	uint64_t shm_total, shm_free;
	uint64_t disk_total, disk_free; /* of the file system that has the given folder */
	uint64_t hugetlb_free;          /* bytes of free huge pages */
	uint32_t numa_nodes;
	/* bytes of files in the folder: a store that is opened again has them already */
	uint64_t disk_ours;
	/* number of caches of one engine that share these resources; 0 and 1: one */
	uint32_t ranks;
	uint32_t siblings;  /* how many of these are open already */
	uint32_t others;    /* open caches on this machine, including siblings */
	uint64_t untouched; /* memory that these caches may use for chunks and do not occupy yet */
};

/* Reads the machine's resources. root: a prefix of /proc, /sys and /dev ("" on a real machine);
 * folder may be NULL. */
void kvt_machine_read(const char *root, const char *folder, struct kvt_machine *out);

/* Returns the bytes of the files under a folder. */
uint64_t kvt_folder_bytes(const char *folder);

/*
 * kvt_size_l1 returns the bytes for L1, in whole MiB: half of the available memory, of the machine
 * or under the cgroup's limit; of shared memory no more than nine tenths of the room in /dev/shm;
 * with hugetlb, the free huge pages. Memory that open caches may still use does not count as
 * available. The ranks of an engine get equal parts, in whatever order they open. kvt_size_nvme
 * returns the bytes for NVMe: eight tenths of the free bytes and the store's own together, and
 * never the disk's last twentieth; this is for all stores together. `why` gets a sentence that
 * names the bound. 0: none available, and `why` says so.
 */
uint64_t kvt_size_l1(const struct kvt_machine *m, const char *backing, char why[KVT_REASON_BYTES]);
uint64_t kvt_size_nvme(const struct kvt_machine *m, char why[KVT_REASON_BYTES]);

/* Returns the size for a configured L1: `bytes`, or if less nine tenths of the room under the
 * cgroup's limit, since the kernel kills a process that takes more; then `why` says so. Only for
 * backing "anon": other memory has its own limits. */
uint64_t kvt_size_cut(
	const struct kvt_machine *m, const char *backing, uint64_t bytes, char why[KVT_REASON_BYTES]);

/* Returns whether `bytes` bytes of memory are available, of which `there` exist already; if not,
 * `why` has the cause. */
bool kvt_size_fits(const struct kvt_machine *m, const char *backing, uint64_t bytes, uint64_t there,
	char why[KVT_REASON_BYTES]);

#endif
