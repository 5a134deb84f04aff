/*
 * command.c - runs `kvway render`.
 *
 * The objects are first written to memory, so that nothing is written if there is a mistake, or
 * memory is short.
 */
#include "render/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/page.h"
#include "render/objects.h"
#include "render/yaml.h"

#define LARGEST ((size_t)4 << 20) /* most bytes of a manifest; etcd accepts 1.5 MiB */

/* Returns false if memory is short. */
static bool write_objects(FILE *out, const struct kvw_plan *plan)
{
	enum kvw_render_part part = plan->options->part;

	if (part == KVW_PART_CONFIG) {
		kvw_render_config(out, plan);
		return true;
	}
	fputs("# Written by kvway render.\n", out);
	if ((part & KVW_PART_CACHE) && !kvw_render_cache(out, plan))
		return false;
	if (part & KVW_PART_WORKERS)
		kvw_render_workers(out, plan);
	if (part & KVW_PART_ROUTER) {
		kvw_render_tls(out, plan);
		if (!kvw_render_router(out, plan))
			return false;
	}
	if (part & KVW_PART_MONITORING)
		kvw_render_monitoring(out, plan);
	return true;
}

static bool write_plan(const struct kvw_plan *plan, FILE *out, FILE *err)
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	bool whole;

	if (memory == NULL) {
		fputs("kvway render: out of memory\n", err);
		return false;
	}
	whole = write_objects(memory, plan) && ferror(memory) == 0;
	whole = fclose(memory) == 0 && whole;
	if (whole)
		fwrite(text, 1, size, out);
	else
		fputs("kvway render: out of memory\n", err);
	free(text);
	return whole;
}

bool kvw_render_text(const struct kvw_render_options *options, const char *name, const char *text,
	size_t len, FILE *out, FILE *err)
{
	struct kvw_report mistakes, notes, remarks;
	struct kvw_manifest manifest;
	struct kvw_plan plan;
	bool written = false;
	enum kvw_err parsed;

	kvw_report_start(&mistakes, name, err);
	kvw_report_start(&notes, name, err);
	kvw_report_start(&remarks, name, err);
	parsed = kvw_manifest_parse(text, len, &mistakes, &notes, &manifest);
	if (parsed == KVW_OK) {
		if (mistakes.mistakes == 0)
			kvw_plan_make(&manifest, options, &mistakes, &notes, &remarks, &plan);
		written = mistakes.mistakes == 0 && !(options->strict && notes.mistakes > 0) &&
			  write_plan(&plan, out, err);
		kvw_manifest_finish(&manifest);
	} else if (parsed == KVW_ENOMEM) {
		fputs("kvway render: out of memory\n", err);
	}
	kvw_report_finish(&mistakes);
	kvw_report_finish(&notes);
	kvw_report_finish(&remarks);
	return written;
}

static bool read_whole(FILE *in, struct kvw_page *page)
{
	char piece[8192];
	size_t n;

	while ((n = fread(piece, 1, sizeof(piece), in)) > 0 && page->len <= LARGEST)
		kvw_page_put(page, piece, n);
	return ferror(in) == 0 && !page->failed;
}

static bool read_manifest(const char *path, FILE *in, FILE *err, struct kvw_page *page)
{
	FILE *file = strcmp(path, "-") == 0 ? in : fopen(path, "r");
	bool read;

	if (file == NULL) {
		fprintf(err, "kvway render: %s: %s\n", path, strerror(errno));
		return false;
	}
	errno = 0;
	read = read_whole(file, page);
	if (!read)
		fprintf(err, "kvway render: %s: %s\n", path,
			errno != 0 ? strerror(errno) : "cannot be read");
	if (file != in)
		fclose(file);
	if (read && page->len > LARGEST) {
		fprintf(err, "kvway render: %s: larger than 4 MiB, expected a manifest\n", path);
		read = false;
	}
	return read;
}

/* Writes a file completely or not at all. A new file can be read by the user only, since the
 * objects may contain passwords. */
static bool write_file(
	const struct kvw_render_options *options, const char *text, size_t size, FILE *err)
{
	int fd = open(options->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
	bool written = file != NULL && fwrite(text, 1, size, file) == size;

	if (file != NULL)
		written = fclose(file) == 0 && written;
	else if (fd >= 0)
		close(fd);
	if (!written)
		fprintf(err, "kvway render: %s: %s\n", options->output, strerror(errno));
	return written;
}

int kvw_render_command(int argc, char **argv, FILE *in, FILE *out, FILE *err)
{
	struct kvw_render_options options;
	struct kvw_page page = {0};
	char *text = NULL;
	size_t size = 0;
	FILE *memory = NULL;
	int status = 1;

	switch (kvw_render_options_parse(argc, argv, out, err, &options)) {
	case KVW_OPTIONS_WRONG:
		return 2;
	case KVW_OPTIONS_DONE:
		return 0;
	case KVW_OPTIONS_GO:
		break;
	}
	if (!read_manifest(options.file, in, err, &page))
		goto out;
	if (strcmp(options.output, "-") == 0) {
		if (kvw_render_text(&options, options.file, page.data != NULL ? page.data : "",
			    page.len, out, err))
			status = fflush(out) == 0 && ferror(out) == 0 ? 0 : 1;
		goto out;
	}
	memory = open_memstream(&text, &size);
	if (memory == NULL) {
		fputs("kvway render: out of memory\n", err);
		goto out;
	}
	if (kvw_render_text(&options, options.file, page.data != NULL ? page.data : "", page.len,
		    memory, err))
		status = 0;
	if (fclose(memory) != 0 || (status == 0 && !write_file(&options, text, size, err)))
		status = 1;
out:
	free(text);
	free(page.data);
	return status;
}
