/*
 * store.c - finds the stores that a path names, and their owners.
 *
 * No file is opened for writing here, because stores may be in use.
 */
#include "command/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tiers/nvme/nvme_inspect.h"

static bool join(char out[4096], const char *folder, const char *name)
{
	int n = snprintf(out, 4096, "%s/%s", folder, name);

	return n > 0 && n < 4096;
}

static void add(void *self, const char *folder)
{
	struct kvt_stores *s = self;
	char **wider = realloc(s->folders, (s->count + 1) * sizeof(*wider));

	if (wider != NULL) {
		s->folders = wider;
		wider[s->count] = strdup(folder);
	}
	if (wider == NULL || wider[s->count] == NULL)
		s->failed = true;
	else
		s->count++;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool kvt_stores_find(const char *verb, const char *path, struct kvt_stores *out)
{
	char format[4096];
	struct stat info;
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_stores){0};
	if (join(format, path, "format") && stat(format, &info) == 0)
		add(out, path);
	else
		status = kvt_inspect_stores(path, add, out);
	if (out->failed)
		fprintf(stderr, "kvtier %s: no memory\n", verb);
	else if (status == KVT_MISS)
		fprintf(stderr, "kvtier %s: %s: no such folder\n", verb, path);
	else if (status != KVT_OK)
		fprintf(stderr, "kvtier %s: %s: cannot be read\n", verb, path);
	else if (out->count == 0)
		fprintf(stderr, "kvtier %s: %s: holds no store\n", verb, path);
	if (status == KVT_OK && out->count > 0 && !out->failed) {
		qsort(out->folders, out->count, sizeof(*out->folders), by_name);
		return true;
	}
	kvt_stores_finish(out);
	return false;
}

void kvt_stores_finish(struct kvt_stores *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->folders[i]);
	free(s->folders);
	*s = (struct kvt_stores){0};
}
