/*
 * sizing.h - how much memory and disk a cache may take when not configured.
 *
 * Reads the cgroup's limit and use (v2 and v1), free memory, /dev/shm, the disk under a folder.
 * The functions that decide are pure, so that tests give them machines.
 */
#ifndef KVT_SIZING_H
#define KVT_SIZING_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

/* What a machine (or a container) has. 0: could not be found out. */
struct kvt_machine {
	uint64_t memory_total, memory_available;
	uint64_t cgroup_limit, cgroup_used; /* limit 0: none */
	uint64_t shm_total, shm_free;
	uint64_t disk_total, disk_free; /* under the folder asked about */
	uint64_t hugetlb_free;          /* bytes of free huge pages */
	uint32_t numa_nodes;
	uint64_t disk_ours; /* bytes of files in the folder already: a store that is opened again */
	uint32_t ranks;     /* caches of one engine that share all this; 0 and 1: one */
	uint32_t siblings;  /* of these, how many are open already */
	uint32_t others;    /* caches that are open on this machine, siblings among them */
	uint64_t untouched; /* memory that these have for chunks and do not occupy yet */
};

/* `root` stands before /proc, /sys and /dev ("" on a real machine); folder may be NULL. */
void kvt_machine_read(const char *root, const char *folder, struct kvt_machine *out);

/* Bytes of the files under a folder. */
uint64_t kvt_folder_bytes(const char *folder);

/*
 * Bytes for L1, whole MiB: half of what is available, in the machine or under the cgroup's limit, and
 * of shared memory no more than nine tenths of what /dev/shm has free; with hugetlb, the free huge
 * pages. What open caches have not touched yet is not available. The ranks of an engine have equal parts of
 * it, whichever of them opens when.
 * Bytes for NVMe: eight tenths of what is free together with what the store has already, and
 * never the disk's last twentieth; of all stores together. `why` gets a sentence that names what bound it.
 * 0: nothing to be had, and `why` says so.
 */
uint64_t kvt_size_l1(const struct kvt_machine *m, const char *backing, char why[KVT_REASON_BYTES]);
uint64_t kvt_size_nvme(const struct kvt_machine *m, char why[KVT_REASON_BYTES]);

/* What a configured L1 may have: `bytes`, or nine tenths of what the cgroup's limit leaves where that
 * is less, and `why` says so; a process that takes more is killed. Only of backing "anon": other
 * memory has its size elsewhere. */
uint64_t kvt_size_cut(
	const struct kvt_machine *m, const char *backing, uint64_t bytes, char why[KVT_REASON_BYTES]);

/* Whether memory of so many bytes can be had, of which `there` exist already; if not, `why` says why
 * not. */
bool kvt_size_fits(const struct kvt_machine *m, const char *backing, uint64_t bytes, uint64_t there,
	char why[KVT_REASON_BYTES]);

#endif
