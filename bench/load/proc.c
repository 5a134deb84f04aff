/* proc.c - what a process has used: CPU time and memory, from /proc. */
#include "bench/load/proc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* First number of a schedstat file: nanoseconds spent running. */
static enum kvw_err read_schedstat(int pid, const char *thread, uint64_t *out)
{
	char path[64];
	FILE *file;
	int got;

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", pid, thread);
	file = fopen(path, "re");
	if (file == NULL)
		return KVW_ENOTFOUND;
	got = fscanf(file, "%lu", out);
	fclose(file);
	return got == 1 ? KVW_OK : KVW_EPROTO;
}

enum kvw_err kvb_proc_thread_cpu_ns(int pid, uint64_t *out, size_t room, size_t *count)
{
	char path[64];
	struct dirent *entry;
	size_t found = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	if (tasks == NULL)
		return KVW_ENOTFOUND;
	while (found < room && (entry = readdir(tasks)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		/* A thread that ended meanwhile is not counted. */
		if (read_schedstat(pid, entry->d_name, &out[found]) == KVW_OK)
			found++;
	}
	closedir(tasks);
	*count = found;
	return found > 0 ? KVW_OK : KVW_ENOTFOUND;
}

enum kvw_err kvb_proc_cpu_ns(int pid, uint64_t *out)
{
	uint64_t threads[1024], sum = 0;
	size_t count;
	enum kvw_err err = kvb_proc_thread_cpu_ns(pid, threads, 1024, &count);

	if (err != KVW_OK)
		return err;
	for (size_t i = 0; i < count; i++)
		sum += threads[i];
	*out = sum;
	return KVW_OK;
}

enum kvw_err kvb_proc_memory(int pid, struct kvb_memory *out)
{
	struct kvb_memory memory = {0};
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	file = fopen(path, "re");
	if (file == NULL)
		return KVW_ENOTFOUND;
	while (fgets(line, sizeof(line), file) != NULL) {
		unsigned long kib;

		if (sscanf(line, "Rss: %lu kB", &kib) == 1)
			memory.rss = kib * 1024;
		else if (sscanf(line, "Pss: %lu kB", &kib) == 1)
			memory.pss = kib * 1024;
		else if (sscanf(line, "Anonymous: %lu kB", &kib) == 1)
			memory.anon = kib * 1024;
	}
	fclose(file);
	if (memory.rss == 0)
		return KVW_EPROTO;
	*out = memory;
	return KVW_OK;
}
