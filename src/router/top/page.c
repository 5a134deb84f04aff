/*
 * page.c - draws the document of GET /status in a terminal: problems first, then what the last
 * minute brought, then the workers, those that are out or slow first.
 */
#include "top/page.h"

#include <string.h>

#include "admin_json.h"
#include "base/standard_out.h"

#define WORKER_MOST 40 /* columns of a worker's name */
#define TEXT_MOST   64 /* bytes of other names */
#define LEAST_WIDTH 40 /* narrower, nothing is folded */
#define LEVEL_WIDTH 9
#define LEAD_WIDTH  14
#define HEAD_LINES  6 /* besides problems and workers */

#define RED   "\033[31m"
#define AMBER "\033[33m"
#define BOLD  "\033[1m"
#define PLAIN "\033[0m"

/* Prints at most `most` bytes of a text from the network, in a column of this width. */
static void put_text(FILE *out, const char *text, int width, int most)
{
	char cut[TEXT_MOST + 1];

	(void)snprintf(cut, sizeof(cut), "%.*s", most, text);
	kvw_print_column(out, cut, width);
}

static void set_color(FILE *out, const struct kvw_top_look *look, const char *code)
{
	if (look->color)
		fputs(code, out);
}

/* --- problems --- */

/* Prints a sentence from column `indent` on, to which its later lines are indented: it is folded
 * between words at the look's width. Returns the number of lines. */
static int put_folded(FILE *out, const char *text, int indent, const struct kvw_top_look *look)
{
	int room = look->width < LEAST_WIDTH ? 0 : look->width - indent, lines = 1, used = 0;

	while (*text != '\0') {
		int word = (int)strcspn(text, " ");

		if (room > 0 && used > 0 && used + 1 + word > room) {
			fprintf(out, "\n%*s", indent, "");
			lines++;
			used = 0;
		}
		if (used > 0)
			fputc(' ', out);
		kvw_print_clean(out, text, (size_t)word);
		used += word + (used > 0);
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', out);
	return lines;
}

int kvw_top_print_problems(const json_t *problems, const struct kvw_top_look *look, FILE *out)
{
	int lines = 0;

	for (size_t i = 0; i < json_array_size(problems); i++) {
		const json_t *problem = json_array_get(problems, i);
		const char *severity = kvw_json_text(problem, "severity");
		bool error = strcmp(severity, "error") == 0;

		set_color(out, look, error ? RED : strcmp(severity, "note") == 0 ? PLAIN : AMBER);
		put_text(out, error ? "ERROR" : severity, LEVEL_WIDTH, LEVEL_WIDTH);
		set_color(out, look, PLAIN);
		lines += put_folded(out, kvw_json_text(problem, "what"), LEVEL_WIDTH, look);
		fprintf(out, "%*s", LEAD_WIDTH, "why: ");
		lines += put_folded(out, kvw_json_text(problem, "why"), LEAD_WIDTH, look);
		fprintf(out, "%*s", LEAD_WIDTH, "do: ");
		lines += put_folded(out, kvw_json_text(problem, "do"), LEAD_WIDTH, look);
	}
	return lines;
}

bool kvw_top_has_errors(const json_t *status)
{
	const json_t *first = json_array_get(json_object_get(status, "problems"), 0);

	return strcmp(kvw_json_text(first, "severity"), "error") == 0; /* errors come first */
}

/* --- the last minute --- */

static void put_ms(FILE *out, const json_t *value)
{
	if (json_is_number(value))
		fprintf(out, "%.0f ms", json_number_value(value));
	else
		fputc('-', out);
}

static void put_share(FILE *out, double part, double whole)
{
	if (whole > 0)
		fprintf(out, "%.0f %%", 100 * part / whole);
	else
		fputc('-', out);
}

static void put_minute(FILE *out, const json_t *status)
{
	const json_t *minute = json_object_get(status, "minute");
	const json_t *waiting = json_array_get(json_object_get(status, "waiting"), 0);
	double seconds = kvw_json_number(minute, "seconds");
	double kept = kvw_json_number(minute, "promises_kept");
	double ended = kvw_json_number(minute, "ok") + kvw_json_number(minute, "client_error") +
		       kvw_json_number(minute, "refused") + kvw_json_number(minute, "failed") +
		       kvw_json_number(minute, "left");
	double promised = kept + kvw_json_number(minute, "promises_late") +
			  kvw_json_number(minute, "promises_slow") +
			  kvw_json_number(minute, "promises_broken");

	seconds = seconds < 1 ? 1 : seconds;
	fprintf(out,
		"requests %.1f/s  in flight %.0f  waiting %.0f (oldest %.0f s)  refused %.0f  "
		"failed %.0f  first token ",
		ended / seconds, kvw_json_number(status, "in_flight"),
		kvw_json_number(waiting, "requests"), kvw_json_number(waiting, "seconds"),
		kvw_json_number(minute, "refused"), kvw_json_number(minute, "failed"));
	put_ms(out, json_object_get(minute, "ttft_p50_ms"));
	fputs(", p90 ", out);
	put_ms(out, json_object_get(minute, "ttft_p90_ms"));
	fprintf(out, "\ntokens in %.0f/s  from cache ",
		kvw_json_number(minute, "prompt_tokens") / seconds);
	put_share(out, kvw_json_number(minute, "cached_tokens"),
		kvw_json_number(minute, "prompt_tokens"));
	fprintf(out, "  out %.0f/s  promises kept ",
		kvw_json_number(minute, "completion_tokens") / seconds);
	put_share(out, kept, promised);
	fputc('\n', out);
}

/* --- workers --- */

/* Returns how urgent a worker's row is: those that are out first, then slow ones. */
static int rank_of(const json_t *worker)
{
	if (!json_is_true(json_object_get(worker, "usable")))
		return 0;
	return json_is_string(json_object_get(worker, "slow")) ? 1 : 2;
}

static void put_number(
	FILE *out, const json_t *worker, const char *key, int width, int digits, double factor)
{
	const json_t *value = json_object_get(worker, key);

	if (json_is_number(value))
		fprintf(out, " %*.*f", width, digits, factor * json_number_value(value));
	else
		fprintf(out, " %*s", width, "-");
}

static void put_worker(
	FILE *out, const json_t *worker, int name_width, const struct kvw_top_look *look)
{
	const char *name = kvw_json_text(worker, "id"), *state = kvw_json_text(worker, "state");
	int rank = rank_of(worker);
	const char *shown = rank == 1                           ? "slow"
			    : strncmp(state, "ejected", 7) == 0 ? "ejected"
								: state;

	put_text(out, name, name_width, name_width);
	fputc(' ', out);
	set_color(out, look, rank == 0 ? RED : rank == 1 ? AMBER : PLAIN);
	put_text(out, shown, 14, 14);
	set_color(out, look, PLAIN);
	put_number(out, worker, "prefilling", 4, 0, 1);
	put_number(out, worker, "decoding", 4, 0, 1);
	put_number(out, worker, "queue_seconds", 7, 2, 1);
	put_number(out, worker, "kv_used", 4, 0, 100);
	put_number(out, worker, "hit_share", 6, 0, 100);
	put_number(out, worker, "requests_per_second", 6, 1, 1);
	put_number(out, worker, "tokens_per_second", 7, 0, 1);
	put_number(out, worker, "ms_per_token", 6, 1, 1);
	put_number(out, worker, "prefill_tokens_per_second", 9, 0, 1);
	fputc('\n', out);
}

static void put_workers(FILE *out, const json_t *workers, int room, const struct kvw_top_look *look)
{
	int name_width = (int)strlen("worker"), shown = 0;
	size_t count = json_array_size(workers);

	for (size_t i = 0; i < count; i++) {
		int len = (int)strlen(kvw_json_text(json_array_get(workers, i), "id"));

		name_width = len > name_width ? len : name_width;
	}
	name_width = name_width > WORKER_MOST ? WORKER_MOST : name_width;
	set_color(out, look, BOLD);
	fprintf(out, "%-*s %-14s %4s %4s %7s %4s %6s %6s %7s %6s %9s\n", name_width, "worker",
		"state", "pre", "dec", "queue s", "kv %", "hits %", "req/s", "tok/s", "ms/tok",
		"prefill/s");
	set_color(out, look, PLAIN);
	for (int rank = 0; rank < 3; rank++)
		for (size_t i = 0; i < count; i++) {
			const json_t *worker = json_array_get(workers, i);

			if (rank_of(worker) != rank || (room > 0 && shown >= room))
				continue;
			put_worker(out, worker, name_width, look);
			shown++;
		}
	if (shown < (int)count)
		fprintf(out, "%zu more workers\n", count - (size_t)shown);
}

static void put_prefixes(FILE *out, const json_t *prefixes)
{
	const json_t *items = json_object_get(prefixes, "items");

	for (size_t i = 0; i < json_array_size(items) && i < 3; i++) {
		const json_t *item = json_array_get(items, i);

		fputs(i == 0 ? "hottest prefixes: " : "; ", out);
		put_text(out, kvw_json_text(item, "prefix"), 0, TEXT_MOST);
		fprintf(out, " (%.0f tokens): %.0f hits on %zu", kvw_json_number(item, "tokens"),
			kvw_json_number(item, "hits"),
			json_array_size(json_object_get(item, "workers")));
	}
	if (json_array_size(items) > 0)
		fputc('\n', out);
}

bool kvw_top_print(
	const json_t *status, const char *address, const struct kvw_top_look *look, FILE *out)
{
	const json_t *about = json_object_get(status, "kvway");
	const json_t *problems = json_object_get(status, "problems");
	const json_t *workers = json_object_get(status, "workers");
	int lines = HEAD_LINES, room = 0;

	if (!json_is_object(about) || !json_is_array(problems) || !json_is_array(workers))
		return false;
	set_color(out, look, BOLD);
	fputs("kvway ", out);
	put_text(out, kvw_json_text(about, "version"), 0, TEXT_MOST);
	set_color(out, look, PLAIN);
	fprintf(out, " at %s  ", address);
	put_text(out, kvw_json_text(about, "strategy"), 0, TEXT_MOST);
	fprintf(out, "  up %.0f s  %zu problem%s%s\n", kvw_json_number(about, "uptime_seconds"),
		json_array_size(problems), json_array_size(problems) == 1 ? "" : "s",
		json_is_true(json_object_get(about, "draining")) ? "  draining" : "");
	lines += kvw_top_print_problems(problems, look, out);
	put_minute(out, status);
	put_prefixes(out, json_object_get(status, "prefixes"));
	if (look->height > 0)
		room = look->height > lines + 3 ? look->height - lines : 3;
	put_workers(out, workers, room, look);
	return true;
}
