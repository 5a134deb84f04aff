/*
 * scrape.c - see scrape.h.
 *
 * vLLM reports its cache as labels of an info metric, one sample per engine:
 *
 *   vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="12345",...} 1.0
 *
 * One of the blocks is never usable (vLLM keeps a null block), so an engine holds (n - 1) *
 * block_size tokens. num_gpu_blocks is "None" until the engine has measured its memory. A worker
 * with several data parallel ranks has one sample for each, and each sample has the blocks of all
 * ranks together, since vLLM's client of the engines adds them up; kv_cache_size_tokens, if
 * present, is that of one rank.
 */
#include "fleet/scrape.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS     (UINT64_C(1) << 40)
#define MAX_BLOCK_SIZE (UINT64_C(1) << 20)
#define MAX_COUNTER    1e15
#define MAX_REQUESTS   1e6

/* A position in a line. */
struct cursor {
	const char *at, *end;
};

struct engine {
	struct kvw_slice name; /* value of the label engine, as written */
	uint64_t blocks, block_size;
	uint64_t tokens; /* kv_cache_size_tokens; 0: not stated */
	bool known;
};

/* Samples of one name, one per engine. */
struct sum {
	double total;
	unsigned count;
};

/* Results so far. */
struct reading {
	struct kvw_scrape result;
	struct engine engines[KVW_SCRAPE_MAX_ENGINES];
	size_t engine_count;
	bool overflow; /* more engines than that */
	struct sum usage, usage_old, progress, running, waiting;
	struct sum prompts, prompt_tokens, first_tokens, queries, hits, blends, drafts, accepted;
	struct sum external;
};

static void skip_blanks(struct cursor *c)
{
	while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
		c->at++;
}

static bool take_char(struct cursor *c, char wanted)
{
	if (c->at == c->end || *c->at != wanted)
		return false;
	c->at++;
	return true;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == ':';
}

static bool take_name(struct cursor *c, struct kvw_slice *name)
{
	const char *start = c->at;

	while (c->at < c->end && is_name_char(*c->at))
		c->at++;
	*name = (struct kvw_slice){start, (size_t)(c->at - start)};
	return name->len > 0;
}

/* A quoted label value, its escapes left as they are. */
static bool take_value(struct cursor *c, struct kvw_slice *value)
{
	const char *start;

	if (!take_char(c, '"'))
		return false;
	for (start = c->at; c->at < c->end && *c->at != '"'; c->at++)
		if (*c->at == '\\' && ++c->at == c->end)
			return false;
	*value = (struct kvw_slice){start, (size_t)(c->at - start)};
	return take_char(c, '"');
}

/* One label and the comma after it. False at the closing brace or an error; *broken says which. */
static bool take_label(
	struct cursor *c, struct kvw_slice *name, struct kvw_slice *value, bool *broken)
{
	skip_blanks(c);
	*broken = false;
	if (take_char(c, '}'))
		return false;
	*broken = true;
	if (!take_name(c, name))
		return false;
	skip_blanks(c);
	if (!take_char(c, '='))
		return false;
	skip_blanks(c);
	if (!take_value(c, value))
		return false;
	skip_blanks(c);
	if (!take_char(c, ',') && (c->at == c->end || *c->at != '}'))
		return false;
	*broken = false;
	return true;
}

/* The sample's value: up to a blank or the line's end. */
static bool take_number(struct cursor *c, double *number)
{
	char text[64], *end;
	size_t len = 0;

	skip_blanks(c);
	while (c->at + len < c->end && len < sizeof(text) - 1 && c->at[len] != ' ' &&
		c->at[len] != '\t' && c->at[len] != '\r') {
		text[len] = c->at[len];
		len++;
	}
	text[len] = '\0';
	c->at += len;
	if (len == 0)
		return false;
	*number = strtod(text, &end);
	return end == text + len;
}

static bool parse_count(struct kvw_slice text, uint64_t max, uint64_t *out)
{
	uint64_t n = 0;

	if (text.len == 0)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(text.data[i] - '0');
		if (n > max)
			return false;
	}
	*out = n;
	return true;
}

/* Records an engine's cache; a second sample of one engine replaces the first. */
static void note_engine(struct reading *reading, const struct engine *engine)
{
	for (size_t i = 0; i < reading->engine_count; i++) {
		if (kvw_slice_equal(reading->engines[i].name, engine->name)) {
			reading->engines[i] = *engine;
			return;
		}
	}
	if (reading->engine_count == KVW_SCRAPE_MAX_ENGINES)
		reading->overflow = true;
	else
		reading->engines[reading->engine_count++] = *engine;
}

static void read_cache_config(struct cursor *c, struct reading *reading)
{
	struct engine engine = {.name = {NULL, 0}};
	struct kvw_slice name, value;
	bool broken, blocks = false, size = false;

	if (!take_char(c, '{'))
		return;
	while (take_label(c, &name, &value, &broken)) {
		if (kvw_slice_equal(name, KVW_SLICE("engine")))
			engine.name = value;
		else if (kvw_slice_equal(name, KVW_SLICE("num_gpu_blocks")))
			blocks = parse_count(value, MAX_BLOCKS, &engine.blocks);
		else if (kvw_slice_equal(name, KVW_SLICE("block_size")))
			size = parse_count(value, MAX_BLOCK_SIZE, &engine.block_size);
		else if (kvw_slice_equal(name, KVW_SLICE("kv_cache_size_tokens")) &&
			!parse_count(value, MAX_BLOCKS * MAX_BLOCK_SIZE, &engine.tokens))
			engine.tokens = 0;
	}
	if (broken)
		return;
	engine.known = blocks && size && engine.blocks > 1 && engine.block_size > 0;
	note_engine(reading, &engine);
}

static void read_start_time(struct cursor *c, struct reading *reading)
{
	double started_s;

	if (!take_number(c, &started_s) || !isfinite(started_s) || started_s <= 0)
		return;
	reading->result.started_known = true;
	reading->result.started_s = started_s;
}

/* A sample whose labels do not matter, between 0 and most. */
static void read_sample(struct cursor *c, double most, struct sum *sum)
{
	struct kvw_slice name, value;
	bool broken = false;
	double number;

	if (take_char(c, '{'))
		while (take_label(c, &name, &value, &broken))
			;
	if (broken || !take_number(c, &number) || !(number >= 0 && number <= most))
		return;
	sum->total += number;
	sum->count++;
}

/* Reads whether an engine is awake, from the one of several series that has that state. */
static void read_sleep_state(struct cursor *c, struct reading *reading)
{
	struct kvw_slice name, value;
	bool broken = false, awake = false;
	double number;

	if (!take_char(c, '{'))
		return;
	while (take_label(c, &name, &value, &broken))
		if (kvw_slice_equal(name, KVW_SLICE("sleep_state")))
			awake = kvw_slice_equal(value, KVW_SLICE("awake"));
	if (!broken && awake && take_number(c, &number) && number == 0)
		reading->result.asleep = true;
}

static void read_line(struct cursor line, struct reading *reading)
{
	struct kvw_slice name;

	skip_blanks(&line);
	if (!take_name(&line, &name))
		return; /* a comment, an empty line, or an unknown metric */
	if (kvw_slice_equal(name, KVW_SLICE("vllm:cache_config_info")))
		read_cache_config(&line, reading);
	else if (kvw_slice_equal(name, KVW_SLICE("process_start_time_seconds")))
		read_start_time(&line, reading);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:kv_cache_usage_perc")))
		read_sample(&line, 1, &reading->usage);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:gpu_cache_usage_perc")))
		read_sample(&line, 1, &reading->usage_old);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:iteration_tokens_total_count")) ||
		kvw_slice_equal(name, KVW_SLICE("vllm:prompt_tokens_total")) ||
		kvw_slice_equal(name, KVW_SLICE("vllm:generation_tokens_total")))
		read_sample(&line, MAX_COUNTER, &reading->progress);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:num_requests_running")))
		read_sample(&line, MAX_REQUESTS, &reading->running);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:num_requests_waiting")))
		read_sample(&line, MAX_REQUESTS, &reading->waiting);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:request_prompt_tokens_count")))
		read_sample(&line, MAX_COUNTER, &reading->prompts);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:request_prompt_tokens_sum")))
		read_sample(&line, MAX_COUNTER, &reading->prompt_tokens);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:time_to_first_token_seconds_count")))
		read_sample(&line, MAX_COUNTER, &reading->first_tokens);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:prefix_cache_queries_total")))
		read_sample(&line, MAX_COUNTER, &reading->queries);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:prefix_cache_hits_total")))
		read_sample(&line, MAX_COUNTER, &reading->hits);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:external_prefix_cache_hits_total")))
		read_sample(&line, MAX_COUNTER, &reading->external);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:spec_decode_num_draft_tokens_total")))
		read_sample(&line, MAX_COUNTER, &reading->drafts);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:spec_decode_num_accepted_tokens_total")))
		read_sample(&line, MAX_COUNTER, &reading->accepted);
	else if (kvw_slice_equal(name, KVW_SLICE("kvtier:fragments_enabled")))
		read_sample(&line, 1, &reading->blends);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:engine_sleep_state")))
		read_sleep_state(&line, reading);
}

/* Usable blocks of one rank of several. */
static uint64_t blocks_of_rank(const struct reading *reading, const struct engine *engine)
{
	uint64_t blocks = engine->blocks, ranks = reading->engine_count;

	for (size_t i = 0; i < ranks; i++)
		if (reading->engines[i].blocks != blocks)
			return blocks - 1; /* each sample has its own rank's blocks */
	if (ranks > 1 && engine->tokens > 0)
		blocks = engine->tokens / engine->block_size;
	else if (blocks % ranks == 0)
		blocks /= ranks;
	return blocks > 0 ? blocks - 1 : 0;
}

static void sum_engines(struct reading *reading)
{
	struct kvw_scrape *result = &reading->result;

	if (reading->engine_count == 0 || reading->overflow)
		return;
	for (size_t i = 0; i < reading->engine_count; i++) {
		const struct engine *engine = &reading->engines[i];

		if (!engine->known) {
			result->capacity_tokens = 0;
			result->block_size = 0;
			return;
		}
		result->capacity_tokens += blocks_of_rank(reading, engine) * engine->block_size;
		if (engine->block_size > result->block_size)
			result->block_size = (uint32_t)engine->block_size;
	}
	result->capacity_known = true;
}

static double total_of(const struct sum *sum)
{
	return sum->count > 0 ? sum->total : -1;
}

void kvw_scrape_metrics(const char *text, size_t len, struct kvw_scrape *out)
{
	struct reading reading;
	const char *at = text, *end = text + len;

	reading.result = (struct kvw_scrape){0};
	reading.engine_count = 0;
	reading.overflow = false;
	reading.usage = reading.usage_old = reading.progress = reading.running =
		reading.waiting = reading.prompts = reading.prompt_tokens =
			reading.first_tokens = reading.queries = reading.hits = reading.blends =
				reading.drafts = reading.accepted = reading.external =
					(struct sum){0};
	while (at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));

		if (stop == NULL)
			stop = end;
		read_line((struct cursor){at, stop}, &reading);
		at = stop + 1;
	}
	sum_engines(&reading);
	reading.result.kv_usage = -1;
	if (reading.usage.count == 0)
		reading.usage = reading.usage_old; /* its name before vLLM 0.10 */
	if (reading.usage.count > 0)
		reading.result.kv_usage = reading.usage.total / reading.usage.count;
	reading.result.progress_known = reading.progress.count > 0;
	reading.result.progress = reading.progress.total;
	reading.result.running = reading.running.total > 0;
	reading.result.requests_waiting = total_of(&reading.waiting);
	reading.result.requests_running = total_of(&reading.running);
	reading.result.prompts = total_of(&reading.prompts);
	reading.result.prompt_tokens = total_of(&reading.prompt_tokens);
	reading.result.first_tokens = total_of(&reading.first_tokens);
	reading.result.cache_queries = total_of(&reading.queries);
	reading.result.cache_hits = total_of(&reading.hits);
	reading.result.external_hits = total_of(&reading.external);
	reading.result.draft_tokens = total_of(&reading.drafts);
	reading.result.draft_accepted = total_of(&reading.accepted);
	reading.result.blends = reading.blends.total > 0;
	*out = reading.result;
}

/* One entry of the list. */
struct listed {
	const char *name;           /* borrowed from the tree */
	struct kvw_model_card card; /* likewise */
};

static int compare_listed(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* The first of equal names is kept. */
static enum kvw_err copy_sorted(struct listed *listed, size_t count, struct kvw_model_names *names)
{
	qsort(listed, count, sizeof(listed[0]), compare_listed);
	for (size_t i = 0; i < count; i++) {
		if (i > 0 && strcmp(listed[i - 1].name, listed[i].name) == 0)
			continue;
		names->items[names->count] = strdup(listed[i].name);
		if (names->items[names->count] == NULL)
			return KVW_ENOMEM;
		if (kvw_model_card_copy(&names->cards[names->count++], &listed[i].card) != KVW_OK)
			return KVW_ENOMEM;
	}
	return KVW_OK;
}

/* NULL: none, or too long. */
static char *card_text(const json_t *entry, const char *key)
{
	const json_t *text = json_object_get(entry, key);

	return json_string_length(text) > KVW_SCRAPE_MAX_CARD_TEXT
		       ? NULL
		       : (char *)json_string_value(text);
}

static struct kvw_model_card read_card(const json_t *entry)
{
	json_int_t created = json_integer_value(json_object_get(entry, "created"));
	json_int_t most = json_integer_value(json_object_get(entry, "max_model_len"));

	return (struct kvw_model_card){
		.root = card_text(entry, "root"),
		.parent = card_text(entry, "parent"),
		.owned_by = card_text(entry, "owned_by"),
		.created_s = created > 0 ? created : 0,
		.max_model_len = most > 0 && most <= UINT32_MAX ? (uint32_t)most : 0,
	};
}

static enum kvw_err read_entry(const json_t *entry, struct listed *listed)
{
	const json_t *id = json_object_get(entry, "id");

	listed->name = json_string_value(id);
	listed->card = read_card(entry);
	if (listed->name == NULL || listed->name[0] == '\0')
		return KVW_EPROTO;
	return json_string_length(id) > KVW_SCRAPE_MAX_MODEL_NAME ? KVW_ELIMIT : KVW_OK;
}

static enum kvw_err collect_names(const json_t *root, struct kvw_model_names *names)
{
	const json_t *data = json_object_get(root, "data");
	size_t count = json_array_size(data);
	struct listed *listed;
	enum kvw_err err = KVW_OK;

	if (!json_is_array(data))
		return KVW_EPROTO;
	if (count > KVW_SCRAPE_MAX_MODELS)
		return KVW_ELIMIT;
	names->items = calloc(count + 1, sizeof(names->items[0]));
	names->cards = calloc(count + 1, sizeof(names->cards[0]));
	listed = calloc(count + 1, sizeof(listed[0]));
	if (names->items == NULL || names->cards == NULL || listed == NULL)
		err = KVW_ENOMEM;
	for (size_t i = 0; i < count && err == KVW_OK; i++)
		err = read_entry(json_array_get(data, i), &listed[i]);
	if (err == KVW_OK)
		err = copy_sorted(listed, count, names);
	free(listed);
	return err;
}

enum kvw_err kvw_scrape_models(const char *text, size_t len, struct kvw_model_names *out)
{
	struct kvw_model_names names = {NULL, NULL, 0};
	json_error_t error;
	json_t *root = json_loadb(text, len, 0, &error);
	enum kvw_err err = root == NULL ? KVW_EPROTO : collect_names(root, &names);

	json_decref(root);
	if (err == KVW_OK)
		*out = names;
	else
		kvw_model_names_finish(&names);
	return err;
}

void kvw_model_names_finish(struct kvw_model_names *names)
{
	for (size_t i = 0; i < names->count; i++) {
		free(names->items[i]);
		kvw_model_card_finish(&names->cards[i]);
	}
	free(names->items);
	free(names->cards);
	*names = (struct kvw_model_names){NULL, NULL, 0};
}
