/*
 * check_machine.h - finds settings of a configuration that this machine cannot hold: for `kvtier
 * check` and `kvtierd check`.
 *
 * Each mistake is a line on standard error. The functions return the number of mistakes. `in` is
 * written before each key: "" or "cache.".
 */
#ifndef KVT_CHECK_MACHINE_H
#define KVT_CHECK_MACHINE_H

#include <stddef.h>

#include "memory/sizing.h"

/* Checks whether the machine has the memory for `ranks` caches of `bytes` each, of which `there`
 * exist already; `key` is the name of the setting. */
size_t kvt_check_memory(const char *key, const char *backing, uint64_t bytes, uint64_t there,
	uint32_t ranks, const struct kvt_machine *m);

/* Checks the NUMA node to which memory is bound. */
size_t kvt_check_numa(const char *in, const struct kvt_config *config, const struct kvt_machine *m);

/* Checks the folder of stores, and the room for those of all ranks. Sets the disk's members of
 * *m. */
size_t kvt_check_store(
	const char *in, const struct kvt_config *config, uint32_t ranks, struct kvt_machine *m);

#endif
