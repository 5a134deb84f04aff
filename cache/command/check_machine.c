/*
 * check_machine.c - finds settings of a configuration that this machine cannot hold.
 */
#include "command/check_machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command/format.h"

#define PATH_BYTES 4096

size_t kvt_check_memory(const char *key, const char *backing, uint64_t bytes, uint64_t there,
	uint32_t ranks, const struct kvt_machine *m)
{
	char why[KVT_REASON_BYTES], asked[KVT_FORMAT_BYTES];

	if (kvt_size_fits(m, backing, bytes * ranks, there, why))
		return 0;
	fprintf(stderr, "%s: found %s%s, but %s\n", key,
		kvt_format_size(asked, (double)bytes * ranks), ranks > 1 ? " together" : "", why);
	return 1;
}

size_t kvt_check_numa(const char *in, const struct kvt_config *config, const struct kvt_machine *m)
{
	if (m->numa_nodes == 0 || config->l1_numa_node < (int32_t)m->numa_nodes)
		return 0;
	fprintf(stderr, "%sl1.numa_node: found %d, but this machine's nodes are 0 to %u\n", in,
		(int)config->l1_numa_node, (unsigned)m->numa_nodes - 1);
	return 1;
}

/* Finds the nearest parent folder that exists, in which the store would be created. */
static bool existing_part(const char *path, char *out, size_t room)
{
	struct stat info;
	int n = snprintf(out, room, "%s", path);

	if (n <= 0 || (size_t)n >= room)
		return false;
	while (stat(out, &info) != 0) {
		char *slash = strrchr(out, '/');

		if (errno != ENOENT)
			return false;
		if (slash == NULL)
			snprintf(out, room, ".");
		else if (slash == out)
			out[1] = '\0';
		else
			*slash = '\0';
	}
	errno = ENOTDIR;
	return S_ISDIR(info.st_mode);
}

size_t kvt_check_store(
	const char *in, const struct kvt_config *config, uint32_t ranks, struct kvt_machine *m)
{
	char part[PATH_BYTES], why[KVT_REASON_BYTES], asked[KVT_FORMAT_BYTES],
		room[KVT_FORMAT_BYTES];
	uint64_t all = config->nvme_capacity * ranks;

	if (!existing_part(config->nvme_path, part, sizeof(part)) ||
		access(part, W_OK | X_OK) != 0) {
		fprintf(stderr, "%snvme.path: %.150s cannot be used: %s\n", in, config->nvme_path,
			strerror(errno));
		return 1;
	}
	kvt_machine_read("", config->nvme_path, m);
	if (m->disk_total == 0)
		return 0;
	if (all > m->disk_free + m->disk_ours) {
		fprintf(stderr,
			"%snvme.capacity: found %s%s, more than the %s that are free in %.150s\n",
			in, kvt_format_size(asked, (double)all), ranks > 1 ? " together" : "",
			kvt_format_size(room, (double)(m->disk_free + m->disk_ours)), part);
		return 1;
	}
	if (all == 0 && kvt_size_nvme(m, why) == 0) {
		fprintf(stderr, "%snvme.capacity: nothing is left for a store: %s\n", in, why);
		return 1;
	}
	return 0;
}
