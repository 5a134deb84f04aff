/* command.c - reads a snapshot's file and prints its contents. A running router is not asked: only
 * the file is read. */
#include "state/command.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "state/file.h"

enum status { STATUS_WHOLE, STATUS_NOT, STATUS_USAGE };

static void print_help(FILE *out)
{
	fputs("Usage: kvway state FILE\n\n"
	      "Shows what is in the snapshot of a router (the key state.file), and whether it is "
	      "whole.\n"
	      "It is read as kvway would read it at its start, and not changed.\n\n"
	      "  -h, --help               this text\n\n"
	      "Exit status: 0 it is whole, 1 it is not or there is none, 2 wrong usage.\n",
		out);
}

static void print_size(FILE *out, uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
	double size = (double)bytes;
	int unit = 0;

	while (size >= 1024 && unit < 3) {
		size /= 1024;
		unit++;
	}
	fprintf(out, unit == 0 ? "%9.0f %-3s" : "%9.1f %-3s", size, units[unit]);
}

static void print_age(FILE *out, int64_t seconds)
{
	if (seconds < 0)
		fputs("in the future", out);
	else if (seconds < 120)
		fprintf(out, "%lld s ago", (long long)seconds);
	else if (seconds < 7200)
		fprintf(out, "%lld min ago", (long long)seconds / 60);
	else
		fprintf(out, "%lld h ago", (long long)seconds / 3600);
}

static void print_head(FILE *out, const struct kvw_state_summary *summary)
{
	time_t when = (time_t)(summary->written_ms / 1000);
	char text[64] = "?";
	struct tm tm;

	if (gmtime_r(&when, &tm) != NULL)
		(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	fprintf(out, "format %u, by kvway %s\nwritten %s, ", summary->version, summary->program,
		text);
	print_age(out, kvw_clock_wall_ns() / KVW_NS_PER_S - when);
	fputc('\n', out);
}

static void print_sections(FILE *out, const struct kvw_state_summary *summary)
{
	fprintf(out, "\n%-32s %10s %13s\n", "SECTION", "RECORDS", "SIZE");
	for (unsigned i = 0; i < KVW_KEPT_KINDS; i++) {
		const struct kvw_state_section *section = &summary->sections[i];
		const char *name = kvw_state_kind_name((enum kvw_keep_kind)i);

		if (section->frames == 0)
			continue;
		fprintf(out, "%-32s %10llu ", name == NULL ? "unknown" : name,
			(unsigned long long)section->records);
		print_size(out, section->bytes);
		fputc('\n', out);
	}
	fprintf(out, "%-32s %10s ", "all", "");
	print_size(out, summary->bytes);
	fputc('\n', out);
}

static int show_snapshot(const char *path, FILE *out, FILE *err)
{
	struct kvw_state_reader *reader;
	char why[KVW_STATE_WHY];
	enum kvw_err result;
	int fd;

	result = kvw_state_file_open(path, INT64_MAX, &fd, why);
	if (result != KVW_OK) {
		fprintf(err, "kvway: %s: %s\n", path,
			result == KVW_ENOTFOUND ? "there is no such file" : why);
		return STATUS_NOT;
	}
	reader = malloc(sizeof(*reader));
	if (reader == NULL) {
		close(fd);
		fputs("kvway: out of memory\n", err);
		return STATUS_NOT;
	}
	result = kvw_state_read_all(reader, fd, INT64_MAX);
	close(fd);
	if (reader->summary.version == KVW_STATE_VERSION) {
		print_head(out, &reader->summary);
		print_sections(out, &reader->summary);
	}
	if (result == KVW_OK)
		fputs("\nwhole\n", out);
	else
		fprintf(err, "kvway: %s: not whole, kvway would not use it: %s\n", path,
			reader->why);
	free(reader);
	return result == KVW_OK ? STATUS_WHOLE : STATUS_NOT;
}

int kvw_state_command(int argc, char **argv, FILE *out, FILE *err)
{
	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		print_help(out);
		return STATUS_WHOLE;
	}
	if (argc != 2 || argv[1][0] == '-') {
		fputs("kvway: `state` takes the path of a snapshot\nTry `kvway state --help`.\n",
			err);
		return STATUS_USAGE;
	}
	return show_snapshot(argv[1], out, err);
}
