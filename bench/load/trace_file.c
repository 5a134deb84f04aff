/* trace_file.c - request traces in the format of Mooncake's public ones. */
#include "bench/load/trace_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"

#define MAX_TOKENS (1 << 24)

/* Reads obj[key], a whole number within 0..max; NULL on success, else what is wrong. */
static const char *number(const json_t *obj, const char *key, int64_t max, int64_t *out)
{
	const json_t *value = json_object_get(obj, key);
	double real = json_is_number(value) ? json_number_value(value) : -1;

	if (!(real >= 0 && real <= (double)max))
		return key;
	*out = (int64_t)real;
	return NULL;
}

/* Fills row from a parsed line; NULL on success, else the key that is wrong. */
static const char *read_row(const json_t *line, struct kvb_trace_row *row)
{
	const json_t *ids = json_object_get(line, "hash_ids");
	int64_t timestamp, input, output;
	const char *wrong = NULL;

	if ((wrong = number(line, "timestamp", INT64_C(1) << 50, &timestamp)) != NULL ||
		(wrong = number(line, "input_length", MAX_TOKENS, &input)) != NULL ||
		(wrong = number(line, "output_length", MAX_TOKENS, &output)) != NULL)
		return wrong;
	if (!json_is_array(ids) || json_array_size(ids) == 0)
		return "hash_ids";
	for (size_t i = 0; i < json_array_size(ids); i++)
		if (!json_is_integer(json_array_get(ids, i)))
			return "hash_ids";
	*row = (struct kvb_trace_row){.timestamp_ms = timestamp,
		.input_tokens = (uint32_t)input,
		.output_tokens = (uint32_t)output,
		.ids = kvb_alloc(json_array_size(ids), sizeof(uint64_t)),
		.id_count = json_array_size(ids)};
	for (size_t i = 0; i < row->id_count; i++)
		row->ids[i] = (uint64_t)json_integer_value(json_array_get(ids, i));
	return NULL;
}

/* Adds the row that a line holds. */
static enum kvw_err add_line(struct kvb_trace *trace, const char *text, size_t len,
	const char *path, size_t number_of_line, FILE *error)
{
	json_error_t cause;
	json_t *line = json_loadb(text, len, 0, &cause);
	struct kvb_trace_row row;
	const char *wrong;

	if (line == NULL) {
		fprintf(error, "%s:%zu: not JSON: %s\n", path, number_of_line, cause.text);
		return KVW_EPROTO;
	}
	wrong = read_row(line, &row);
	json_decref(line);
	if (wrong != NULL) {
		fprintf(error, "%s:%zu: %s is missing or not as a trace has it\n", path,
			number_of_line, wrong);
		return KVW_EPROTO;
	}
	if (trace->count > 0 && row.timestamp_ms < trace->rows[trace->count - 1].timestamp_ms) {
		fprintf(error, "%s:%zu: timestamp goes back\n", path, number_of_line);
		free(row.ids);
		return KVW_EPROTO;
	}
	if ((trace->count & (trace->count - 1)) == 0)
		trace->rows =
			kvb_realloc(trace->rows, trace->count ? trace->count * 2 : 1, sizeof(row));
	trace->rows[trace->count++] = row;
	return KVW_OK;
}

enum kvw_err kvb_trace_load(const char *path, size_t limit, struct kvb_trace *out, FILE *error)
{
	struct kvb_trace trace = {0};
	enum kvw_err err = KVW_OK;
	size_t capacity = 0, line = 0;
	char *text = NULL;
	ssize_t len;
	FILE *file = fopen(path, "re");

	if (file == NULL) {
		fprintf(error, "%s: %s\n", path, strerror(errno));
		return KVW_EIO;
	}
	while (err == KVW_OK && (limit == 0 || trace.count < limit) &&
		(len = getline(&text, &capacity, file)) > 0) {
		line++;
		if (strspn(text, " \t\r\n") == (size_t)len)
			continue;
		err = add_line(&trace, text, (size_t)len, path, line, error);
	}
	if (err == KVW_OK && ferror(file)) {
		fprintf(error, "%s: %s\n", path, strerror(errno));
		err = KVW_EIO;
	}
	if (err == KVW_OK && trace.count == 0) {
		fprintf(error, "%s: no request in it\n", path);
		err = KVW_ENOTFOUND;
	}
	free(text);
	fclose(file);
	if (err == KVW_OK)
		*out = trace;
	else
		kvb_trace_finish(&trace);
	return err;
}

void kvb_trace_finish(struct kvb_trace *trace)
{
	for (size_t i = 0; i < trace->count; i++)
		free(trace->rows[i].ids);
	free(trace->rows);
	*trace = (struct kvb_trace){0};
}
