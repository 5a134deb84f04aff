/* workload.c - the list of workloads and what they share; see workload.h. */
#include "bench/load/workload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct kvb_workload_ops *const workloads[] = {
#define KVB_WORKLOAD(name) &(name),
#include "bench/load/workloads.def"
#undef KVB_WORKLOAD
};

#define COUNT (sizeof(workloads) / sizeof(workloads[0]))

const struct kvb_workload_ops *kvb_workload_find(const char *name)
{
	for (size_t i = 0; i < COUNT; i++)
		if (strcmp(workloads[i]->name, name) == 0)
			return workloads[i];
	return NULL;
}

void kvb_workload_names(FILE *out)
{
	for (size_t i = 0; i < COUNT; i++)
		fprintf(out, "%s%s", i > 0 ? ", " : "", workloads[i]->name);
}

enum kvb_turn kvb_workload_next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns)
{
	enum kvb_turn turn;

	*wake_ns = KVB_NEVER;
	if (workload->under_way == workload->at_once && workload->asked < workload->planned)
		return KVB_WAIT;
	turn = workload->ops->next(workload, now_ns, out, wake_ns);
	if (turn == KVB_ASK) {
		workload->asked++;
		workload->under_way++;
	}
	return turn;
}

void kvb_workload_ended(
	struct kvb_workload *workload, uint64_t tag, bool ok, const char *text, size_t len)
{
	workload->under_way--;
	if (workload->ops->ended != NULL)
		workload->ops->ended(workload, tag, ok, text, len);
}

void kvb_ask_message(struct kvb_ask *ask, const char *role, const char *text, size_t len)
{
	struct kvb_buf *out = &ask->messages;

	kvb_buf_printf(out, "%s{\"role\":\"%s\",\"content\":\"", out->len > 0 ? "," : "", role);
	kvb_buf_json_text(out, text, len);
	kvb_buf_text(out, "\"}");
}

void kvb_fill(struct kvb_buf *out, const char *word, int64_t count)
{
	size_t unit = strlen(word) + 1, total, have;
	char *text;

	if (count <= 0)
		return;
	total = (size_t)count * unit;
	text = kvb_alloc(total, 1);
	memcpy(text, word, unit - 1);
	text[unit - 1] = ' ';
	for (have = unit; have < total; have *= 2) /* doubles the text */
		memcpy(text + have, text, total - have < have ? total - have : have);
	kvb_buf_add(out, text, total - 1);
	free(text);
}

uint64_t kvb_fits(double volume_gb, int64_t tokens_per_gb, int64_t tokens)
{
	double count = volume_gb * (double)tokens_per_gb / (double)tokens;

	if (count < 1)
		return 1;
	return count < 1e18 ? (uint64_t)count : UINT64_C(1000000000000000000);
}

enum kvw_err kvb_workload_words(
	const struct kvb_engine_options *options, struct kvb_word_pool *out, FILE *error)
{
	struct kvb_buf file = {0};
	bool in_model_folder = false;

	if (options->tokenizer != NULL)
		return kvb_word_pool_load(out, options->tokenizer, options->seed, error);
	if (options->model != NULL) {
		kvb_buf_printf(&file, "%s/tokenizer.json", options->model);
		in_model_folder = access(kvb_buf_str(&file), R_OK) == 0;
		kvb_buf_finish(&file);
	}
	if (in_model_folder)
		return kvb_word_pool_load(out, options->model, options->seed, error);
	kvb_word_pool_builtin(out);
	return KVW_OK;
}

enum kvw_err kvb_check_count(const char *name, double requests, FILE *error)
{
	if (requests <= KVB_MAX_REQUESTS)
		return KVW_OK;
	fprintf(error, "kvbench: %s would send %.0f requests, at most %d are possible in one run\n",
		name, requests, KVB_MAX_REQUESTS);
	return KVW_EINVAL;
}
