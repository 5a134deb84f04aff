/*
 * table.c - prints workers as a table. Text from the network is printed without control characters.
 */
#include "workers/table.h"

#include <jansson.h>
#include <string.h>

#include "admin_json.h"
#include "base/standard_out.h"

#define STATE_ROOM 96

static void put_number(FILE *out, const json_t *value, int width, int digits, double factor)
{
	if (json_is_number(value))
		fprintf(out, "  %*.*f", width, digits, factor * json_number_value(value));
	else
		fprintf(out, "  %*s", width, "-");
}

/* Writes a text such as "draining, leaves in 12 s at most", "up, prefill" or "up, /v1/models:
 * status 401". */
static void state_text(const json_t *worker, char text[STATE_ROOM])
{
	double ms = kvw_json_number(worker, "leaves_in_ms");
	const char *fault = kvw_json_text(worker, "models_error");
	const char *role = kvw_json_text(worker, "role");
	bool whole = *role == '\0' || strcmp(role, "both") == 0;

	if (json_is_true(json_object_get(worker, "leaves")))
		(void)snprintf(text, STATE_ROOM, "leaves within %.0f s", ms / 1000 + 0.5);
	else
		(void)snprintf(text, STATE_ROOM, "%s%s%.8s%s%.48s", kvw_json_text(worker, "state"),
			whole ? "" : ", ", whole ? "" : role,
			*fault != '\0' ? ", /v1/models: " : "", fault);
}

static void put_sources(FILE *out, const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));

		kvw_printf(out, "%s%s", i > 0 ? "," : "", name != NULL ? name : "");
	}
}

static void put_worker(FILE *out, const json_t *worker, int url_width, int state_width)
{
	const json_t *models = json_object_get(worker, "models");
	char state[STATE_ROOM];

	state_text(worker, state);
	kvw_print_column(out, kvw_json_text(worker, "url"), url_width + 2);
	kvw_print_column(out, state, state_width);
	if (json_is_array(models))
		fprintf(out, "  %6zu", json_array_size(models));
	else
		fprintf(out, "  %6s", "-");
	put_number(out, json_object_get(worker, "inflight"), 8, 0, 1);
	put_number(out, json_object_get(worker, "queue_seconds"), 7, 2, 1);
	put_number(out, json_object_get(worker, "hit_share"), 6, 0, 100);
	fputs("  ", out);
	put_sources(out, json_object_get(worker, "sources"));
	fputc('\n', out);
}

static void print(FILE *out, const json_t *list)
{
	int url_width = (int)strlen("worker"), state_width = (int)strlen("state");
	char state[STATE_ROOM];

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *worker = json_array_get(list, i);
		int url = (int)strlen(kvw_json_text(worker, "url"));

		state_text(worker, state);
		url_width = url > url_width ? url : url_width;
		state_width = (int)strlen(state) > state_width ? (int)strlen(state) : state_width;
	}
	fprintf(out, "%-*s  %-*s  %6s  %8s  %7s  %6s  %s\n", url_width, "worker", state_width,
		"state", "models", "inflight", "queue s", "hits %", "listed by");
	for (size_t i = 0; i < json_array_size(list); i++)
		put_worker(out, json_array_get(list, i), url_width, state_width);
}

enum kvw_err kvw_workers_table_print(struct kvw_slice json, FILE *out)
{
	json_t *root = json_loadb(json.data, json.len, 0, NULL);
	json_t *list = json_is_object(root) ? json_pack("[O]", root) : json_incref(root);
	bool good = json_is_array(list);

	for (size_t i = 0; good && i < json_array_size(list); i++)
		good = *kvw_json_text(json_array_get(list, i), "url") != '\0';
	if (good)
		print(out, list);
	json_decref(list);
	json_decref(root);
	return good ? KVW_OK : KVW_EPROTO;
}
