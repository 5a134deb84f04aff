/*
 * cli_diff.c - prints differences as a table.
 *
 * Columns are as wide as their widest text, but at most WIDTH_MAX: a longer text is printed whole,
 * and only its own line is wider.
 */
#include "cli_diff.h"

#include <string.h>

#define WIDTH_MAX 40
#define AT_RELOAD "at reload"
#define RESTART   "needs a restart"

/* One line of the table. Borrowed. */
struct row {
	const char *worker; /* URL of a worker; NULL: the row is a key of the router */
	const char *key;    /* the key; NULL: the worker itself was added or removed */
	const char *before, *after, *when;
};

/* Collects a row for each difference, in a fixed order. */
struct rows {
	const struct kvw_config_diff *diff;
	size_t key, worker, worker_key;
};

static void set_change(struct row *row, const char *worker, const struct kvw_config_change *change)
{
	*row = (struct row){worker, change->path, change->before, change->after,
		change->reload ? AT_RELOAD : RESTART};
}

static bool next_row(struct rows *rows, struct row *row)
{
	const struct kvw_config_diff *diff = rows->diff;
	const struct kvw_worker_change *worker;

	if (rows->key < diff->key_count) {
		set_change(row, NULL, &diff->keys[rows->key++]);
		return true;
	}
	while (rows->worker < diff->worker_count) {
		worker = &diff->workers[rows->worker];
		if (rows->worker_key < worker->key_count) {
			set_change(row, worker->url, &worker->keys[rows->worker_key++]);
			return true;
		}
		rows->worker++;
		rows->worker_key = 0;
		if (worker->kind == KVW_WORKER_CHANGED)
			continue;
		*row = (struct row){.worker = worker->url,
			.before = worker->kind == KVW_WORKER_ADDED ? "-" : "there",
			.after = worker->kind == KVW_WORKER_ADDED ? "added" : "removed",
			.when = AT_RELOAD};
		return true;
	}
	return false;
}

/* Characters of UTF-8. */
static size_t length_of(const char *text)
{
	size_t length = 0;

	for (; *text != '\0'; text++)
		length += ((unsigned char)*text & 0xC0) != 0x80;
	return length;
}

/* Returns the length of `worker URL KEY`, `worker URL` or `KEY`. */
static size_t name_length(const struct row *row)
{
	size_t length = row->worker != NULL ? strlen("worker ") + strlen(row->worker) : 0;

	if (row->key != NULL)
		length += strlen(row->key) + (row->worker != NULL);
	return length;
}

static void widen(size_t *width, size_t length)
{
	if (length > WIDTH_MAX)
		length = WIDTH_MAX;
	if (length > *width)
		*width = length;
}

static void pad(FILE *out, size_t length, size_t width)
{
	fprintf(out, "%*s", (int)(length < width ? width - length : 0) + 2, "");
}

static void put_row(FILE *out, const struct row *row, const size_t width[3])
{
	if (row->worker != NULL)
		fprintf(out, "worker %s%s", row->worker, row->key != NULL ? " " : "");
	fputs(row->key != NULL ? row->key : "", out);
	pad(out, name_length(row), width[0]);
	fputs(row->before, out);
	pad(out, length_of(row->before), width[1]);
	fputs(row->after, out);
	pad(out, length_of(row->after), width[2]);
	fprintf(out, "%s\n", row->when);
}

static void put_table(FILE *out, const struct kvw_config_diff *diff)
{
	const struct row head = {
		.key = "KEY", .before = "OLD", .after = "NEW", .when = "TAKES EFFECT"};
	struct rows rows = {.diff = diff};
	size_t width[3] = {3, 3, 3};
	struct row row;

	while (next_row(&rows, &row)) {
		widen(&width[0], name_length(&row));
		widen(&width[1], length_of(row.before));
		widen(&width[2], length_of(row.after));
	}
	put_row(out, &head, width);
	rows = (struct rows){.diff = diff};
	while (next_row(&rows, &row))
		put_row(out, &row, width);
}

void kvw_cli_print_diff(FILE *out, const struct kvw_config_diff *diff, const char *running)
{
	if (diff->key_count == 0 && diff->worker_count == 0) {
		fprintf(out, "no difference from %s\n", running);
		return;
	}
	put_table(out, diff);
	if (diff->restart_count == 0)
		fputs("a reload takes all of this over\n", out);
	else
		fprintf(out, "%zu key%s a restart; until then the running values stay\n",
			diff->restart_count, diff->restart_count == 1 ? " needs" : "s need");
}
