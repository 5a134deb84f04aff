/*
 * sizing_read.c - reads the resources of the machine or the container from /proc, /sys and the file
 * systems.
 *
 * A cgroup is bounded by its own limit and by those of all its ancestors: the limit with the least
 * room counts. Its use includes file pages that the kernel drops under pressure; inactive ones are
 * not counted. A container may show the host's path in /proc/self/cgroup and its own group as the
 * mount's root: the walk upwards skips missing folders, and reads the root last. Under version 1
 * "no limit" is a number near 2^63.
 *
 * Unreadable numbers stay 0. The files are the kernel's, but a container may show others under the
 * same names: implausible numbers count as absent.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "memory/sizing.h"

#define PATH_BYTES 4096
#define NO_LIMIT   ((uint64_t)1 << 60)
#define MOST_DEPTH 4     /* depth to which the folder of a store is read */
#define MOST_FILES 65536 /* limit of files that are counted */

/* Joins two paths into `to`; false: too long. */
static bool join(char to[PATH_BYTES], const char *a, const char *b, const char *c)
{
	int n = snprintf(to, PATH_BYTES, "%s%s%s", a, b, c);

	return n >= 0 && n < PATH_BYTES;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? 0 : product;
}

/* Parses a decimal number; false for "max" and anything else. */
static bool parse(const char *text, uint64_t *out)
{
	char *end;

	while (*text == ' ' || *text == '\t')
		text++;
	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno == 0;
}

/* Reads the number of a file that has only one. */
static bool read_number(const char *path, uint64_t *out)
{
	FILE *file = fopen(path, "re");
	char line[64];
	bool good;

	if (file == NULL)
		return false;
	good = fgets(line, sizeof(line), file) != NULL && parse(line, out);
	fclose(file);
	return good;
}

/* Returns the number after `name` in a file of lines "name number"; 0: there is no such line. */
static uint64_t read_field(const char *path, const char *name)
{
	size_t len = strlen(name);
	FILE *file = fopen(path, "re");
	uint64_t value = 0;
	char line[256];

	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, name, len) != 0 || (line[len] != ' ' && line[len] != '\t'))
			continue;
		if (!parse(line + len, &value))
			value = 0;
		break;
	}
	fclose(file);
	return value;
}

static uint64_t room_of(uint64_t limit, uint64_t used)
{
	return limit > used ? limit - used : 0;
}

static void read_memory(const char *root, struct kvt_machine *m)
{
	char path[PATH_BYTES];

	if (!join(path, root, "/proc/meminfo", ""))
		return;
	m->memory_total = times(read_field(path, "MemTotal:"), 1024);
	m->memory_available = times(read_field(path, "MemAvailable:"), 1024);
	m->hugetlb_free = times(
		room_of(read_field(path, "HugePages_Free:"), read_field(path, "HugePages_Rsvd:")),
		times(read_field(path, "Hugepagesize:"), 1024));
}

/* Names of the files of one version of cgroups. */
struct cgroup_files {
	const char *mount;
	const char *limit;
	const char *used;
	const char *droppable; /* field of memory.stat with bytes that the kernel can drop */
};

static const struct cgroup_files version_2 = {
	"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
static const struct cgroup_files version_1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
	"/memory.usage_in_bytes", "total_inactive_file"};

/* Takes the limit of one group if it leaves less room than the limits read before. */
static void read_group(const char *folder, const struct cgroup_files *files, struct kvt_machine *m)
{
	uint64_t limit, used = 0, droppable;
	char path[PATH_BYTES];

	if (!join(path, folder, files->limit, "") || !read_number(path, &limit) ||
		limit >= NO_LIMIT)
		return;
	if (join(path, folder, files->used, "") && !read_number(path, &used))
		used = 0;
	droppable = join(path, folder, "/memory.stat", "") ? read_field(path, files->droppable) : 0;
	used = room_of(used, droppable);
	if (limit > 0 && (m->cgroup_limit == 0 ||
				 room_of(limit, used) < room_of(m->cgroup_limit, m->cgroup_used))) {
		m->cgroup_limit = limit;
		m->cgroup_used = used;
	}
}

/* Reads the group and all its ancestors. */
static void read_groups(const char *root, const char *group, const struct cgroup_files *files,
	struct kvt_machine *m)
{
	char folder[PATH_BYTES];
	size_t top;

	if (strstr(group, "..") != NULL || !join(folder, root, files->mount, group))
		return;
	top = strlen(root) + strlen(files->mount);
	for (;;) {
		char *slash = strrchr(folder + top, '/');

		read_group(folder, files, m);
		if (slash == NULL)
			return;
		*slash = '\0';
	}
}

static void read_cgroup(const char *root, struct kvt_machine *m)
{
	char path[PATH_BYTES], line[PATH_BYTES];
	FILE *file;

	if (!join(path, root, "/proc/self/cgroup", ""))
		return;
	file = fopen(path, "re");
	if (file == NULL)
		return;
	while (fgets(line, sizeof(line), file) != NULL) { /* "ID:CONTROLLERS:PATH" */
		char *controllers = strchr(line, ':'), *group;

		line[strcspn(line, "\n")] = '\0';
		if (controllers == NULL)
			continue;
		group = strchr(++controllers, ':');
		if (group == NULL)
			continue;
		*group++ = '\0';
		if (strcmp(group, "/") == 0)
			group[0] = '\0';
		if (controllers[0] == '\0' && strncmp(line, "0:", 2) == 0)
			read_groups(root, group, &version_2, m);
		else if (strcmp(controllers, "memory") == 0)
			read_groups(root, group, &version_1, m);
	}
	fclose(file);
}

static void read_space(const char *path, uint64_t *total, uint64_t *free_bytes)
{
	struct statvfs fs;

	if (statvfs(path, &fs) != 0)
		return;
	*total = times(fs.f_blocks, fs.f_frsize);
	*free_bytes = times(fs.f_bavail, fs.f_frsize);
}

/* Returns the blocks of the files below a folder. */
static uint64_t blocks_under(const char *folder, int depth, uint32_t *files)
{
	DIR *dir = opendir(folder);
	uint64_t bytes = 0;
	struct dirent *entry;

	if (dir == NULL)
		return 0;
	while (*files < MOST_FILES && (entry = readdir(dir)) != NULL) {
		char path[PATH_BYTES];
		struct stat st;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		++*files;
		if (!join(path, folder, "/", entry->d_name) || lstat(path, &st) != 0)
			continue;
		if (S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * 512;
		else if (S_ISDIR(st.st_mode) && depth < MOST_DEPTH)
			bytes += blocks_under(path, depth + 1, files);
	}
	closedir(dir);
	return bytes;
}

uint64_t kvt_folder_bytes(const char *folder)
{
	uint32_t files = 0;

	return blocks_under(folder, 0, &files);
}

/* Reads the file system of a folder; if the folder is missing, that of its nearest existing
 * parent. */
static void read_disk(const char *folder, struct kvt_machine *m)
{
	char path[PATH_BYTES];

	if (!join(path, folder, "", ""))
		return;
	m->disk_ours = kvt_folder_bytes(folder);
	while (m->disk_total == 0) {
		char *slash = strrchr(path, '/');

		read_space(path, &m->disk_total, &m->disk_free);
		if (m->disk_total != 0 || strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
			return;
		if (slash == NULL)
			strcpy(path, ".");
		else
			slash[slash == path] = '\0';
	}
}

static uint32_t count_nodes(const char *root)
{
	char path[PATH_BYTES];
	struct dirent *entry;
	uint32_t nodes = 0;
	DIR *dir = join(path, root, "/sys/devices/system/node", "") ? opendir(path) : NULL;

	if (dir == NULL)
		return 0;
	while ((entry = readdir(dir)) != NULL)
		nodes += strncmp(entry->d_name, "node", 4) == 0 &&
			 isdigit((unsigned char)entry->d_name[4]);
	closedir(dir);
	return nodes;
}

void kvt_machine_read(const char *root, const char *folder, struct kvt_machine *out)
{
	struct kvt_machine m = {0};
	char path[PATH_BYTES];

	read_memory(root, &m);
	read_cgroup(root, &m);
	if (join(path, root, "/dev/shm", ""))
		read_space(path, &m.shm_total, &m.shm_free);
	if (folder != NULL && folder[0] != '\0')
		read_disk(folder, &m);
	m.numa_nodes = count_nodes(root);
	*out = m;
}
