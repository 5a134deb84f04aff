/*
 * scrape.c - reads vLLM's metrics and list of models.
 *
 * vLLM reports its cache as labels of an info metric, one sample per engine:
 *
 *   vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="12345",...} 1.0
 *
 * One of the blocks is never usable (vLLM keeps a null block), so that an engine with n blocks
 * holds (n - 1) * block_size tokens. num_gpu_blocks is "None" until the engine has measured its
 * memory. A worker with several data parallel ranks has one sample for each, and each sample has
 * the blocks of all ranks together, since vLLM's client of the engines adds them up;
 * kv_cache_size_tokens, if present, is that of one rank.
 */
#include "fleet/scrape.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
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

/* The cache of an engine. */
struct cache {
	uint64_t blocks, block_size;
	uint64_t tokens; /* value of kv_cache_size_tokens; 0: not stated */
	bool stated, known;
};

/* Sum and number of the samples of one name. */
struct sum {
	double total;
	unsigned count;
};

/* The samples of one engine, by its label. */
struct engine {
	struct kvw_slice name; /* value of the label `engine`, as written; len 0: none */
	struct cache cache;
	struct sum usage, usage_old, progress, running, waiting;
	struct sum prompts, prompt_tokens, first_tokens, queries, hits, blends, drafts, accepted;
	struct sum external;
	bool asleep;
};

/* Results so far. */
struct reading {
	struct kvw_scrape all; /* the samples that belong to the process, not to an engine */
	struct engine *engines; /* [engine_count] owned */
	size_t engine_count, engine_room;
	size_t last;   /* index of the engine of the sample before */
	bool overflow; /* the page has more engines than are kept, or memory is out */
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

/* Reads a quoted label value; its escapes stay as they are. */
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

/* Reads one label and the comma after it. False at the closing brace or an error; *broken says
 * which. */
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

/* Reads the sample's value, up to a blank or the line's end. */
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

/* Finds or makes the engine of this label. NULL: there are too many. */
static struct engine *engine_of(struct reading *reading, struct kvw_slice name)
{
	size_t count = reading->engine_count;

	for (size_t i = 0; i < count; i++) {
		/* samples of one engine mostly follow each other */
		size_t at = (reading->last + i) % count;

		if (!kvw_slice_equal(reading->engines[at].name, name))
			continue;
		reading->last = at;
		return &reading->engines[at];
	}
	if (count == reading->engine_room && count < KVW_SCRAPE_MAX_ENGINES) {
		size_t room = count == 0 ? 4 : 4 * count;
		struct engine *grown = realloc(reading->engines, room * sizeof(*grown));

		if (grown != NULL) {
			reading->engines = grown;
			reading->engine_room = room;
		}
	}
	if (count == reading->engine_room) {
		reading->overflow = true;
		return NULL;
	}
	reading->engines[count] = (struct engine){.name = name};
	reading->engine_count++;
	reading->last = count;
	return &reading->engines[count];
}

/* Reads a cache_config_info; a second sample of one engine replaces the first. */
static void read_cache_config(struct cursor *c, struct reading *reading)
{
	struct kvw_slice name, value, label = {NULL, 0};
	struct cache cache = {.stated = true};
	bool broken, blocks = false, size = false;
	struct engine *engine;

	if (!take_char(c, '{'))
		return;
	while (take_label(c, &name, &value, &broken)) {
		if (kvw_slice_equal(name, KVW_SLICE("engine")))
			label = value;
		else if (kvw_slice_equal(name, KVW_SLICE("num_gpu_blocks")))
			blocks = parse_count(value, MAX_BLOCKS, &cache.blocks);
		else if (kvw_slice_equal(name, KVW_SLICE("block_size")))
			size = parse_count(value, MAX_BLOCK_SIZE, &cache.block_size);
		else if (kvw_slice_equal(name, KVW_SLICE("kv_cache_size_tokens")) &&
			!parse_count(value, MAX_BLOCKS * MAX_BLOCK_SIZE, &cache.tokens))
			cache.tokens = 0;
	}
	if (broken)
		return;
	cache.known = blocks && size && cache.blocks > 1 && cache.block_size > 0;
	engine = engine_of(reading, label);
	if (engine != NULL)
		engine->cache = cache;
}

static void read_start_time(struct cursor *c, struct reading *reading)
{
	double started_s;

	if (!take_number(c, &started_s) || !isfinite(started_s) || started_s <= 0)
		return;
	reading->all.started_known = true;
	reading->all.started_s = started_s;
}

/* Reads a sample's labels and returns that of its engine. False: malformed. */
static bool take_engine(struct cursor *c, struct kvw_slice *label)
{
	struct kvw_slice name, value;
	bool broken = false;

	*label = (struct kvw_slice){NULL, 0};
	if (take_char(c, '{'))
		while (take_label(c, &name, &value, &broken))
			if (kvw_slice_equal(name, KVW_SLICE("engine")))
				*label = value;
	return !broken;
}

/* Adds a sample between 0 and `most` to a sum of its engine, which lies at `offset`. */
static void read_sample(struct cursor *c, double most, struct reading *reading, size_t offset)
{
	struct kvw_slice label;
	struct engine *engine;
	struct sum *sum;
	double number;

	if (!take_engine(c, &label) || !take_number(c, &number) ||
		!(number >= 0 && number <= most))
		return;
	engine = engine_of(reading, label);
	if (engine == NULL)
		return;
	sum = (struct sum *)((char *)engine + offset);
	sum->total += number;
	sum->count++;
}

/* Reads whether an engine is awake: of several series, that of its present state is 1. */
static void read_sleep_state(struct cursor *c, struct reading *reading)
{
	struct kvw_slice name, value, label = {NULL, 0};
	bool broken = false, awake = false;
	struct engine *engine;
	double number;

	if (!take_char(c, '{'))
		return;
	while (take_label(c, &name, &value, &broken))
		if (kvw_slice_equal(name, KVW_SLICE("sleep_state")))
			awake = kvw_slice_equal(value, KVW_SLICE("awake"));
		else if (kvw_slice_equal(name, KVW_SLICE("engine")))
			label = value;
	engine = broken ? NULL : engine_of(reading, label);
	if (engine != NULL && awake && take_number(c, &number) && number == 0)
		engine->asleep = true;
}

/* Series that are summed up for each engine. */
static const struct {
	struct kvw_slice name;
	double most;
	size_t offset;
} series[] = {
	{KVW_SLICE("vllm:kv_cache_usage_perc"), 1, offsetof(struct engine, usage)},
	{KVW_SLICE("vllm:gpu_cache_usage_perc"), 1, offsetof(struct engine, usage_old)},
	{KVW_SLICE("vllm:iteration_tokens_total_count"), MAX_COUNTER,
		offsetof(struct engine, progress)},
	{KVW_SLICE("vllm:prompt_tokens_total"), MAX_COUNTER, offsetof(struct engine, progress)},
	{KVW_SLICE("vllm:generation_tokens_total"), MAX_COUNTER, offsetof(struct engine, progress)},
	{KVW_SLICE("vllm:num_requests_running"), MAX_REQUESTS, offsetof(struct engine, running)},
	{KVW_SLICE("vllm:num_requests_waiting"), MAX_REQUESTS, offsetof(struct engine, waiting)},
	{KVW_SLICE("vllm:request_prompt_tokens_count"), MAX_COUNTER,
		offsetof(struct engine, prompts)},
	{KVW_SLICE("vllm:request_prompt_tokens_sum"), MAX_COUNTER,
		offsetof(struct engine, prompt_tokens)},
	{KVW_SLICE("vllm:time_to_first_token_seconds_count"), MAX_COUNTER,
		offsetof(struct engine, first_tokens)},
	{KVW_SLICE("vllm:prefix_cache_queries_total"), MAX_COUNTER,
		offsetof(struct engine, queries)},
	{KVW_SLICE("vllm:prefix_cache_hits_total"), MAX_COUNTER, offsetof(struct engine, hits)},
	{KVW_SLICE("vllm:external_prefix_cache_hits_total"), MAX_COUNTER,
		offsetof(struct engine, external)},
	{KVW_SLICE("vllm:spec_decode_num_draft_tokens_total"), MAX_COUNTER,
		offsetof(struct engine, drafts)},
	{KVW_SLICE("vllm:spec_decode_num_accepted_tokens_total"), MAX_COUNTER,
		offsetof(struct engine, accepted)},
	{KVW_SLICE("kvtier:fragments_enabled"), 1, offsetof(struct engine, blends)},
};

static void read_line(struct cursor line, struct reading *reading)
{
	struct kvw_slice name;

	skip_blanks(&line);
	if (!take_name(&line, &name))
		return; /* a comment, an empty line, or an unknown metric */
	for (size_t i = 0; i < sizeof(series) / sizeof(series[0]); i++) {
		if (!kvw_slice_equal(name, series[i].name))
			continue;
		read_sample(&line, series[i].most, reading, series[i].offset);
		return;
	}
	if (kvw_slice_equal(name, KVW_SLICE("vllm:cache_config_info")))
		read_cache_config(&line, reading);
	else if (kvw_slice_equal(name, KVW_SLICE("process_start_time_seconds")))
		read_start_time(&line, reading);
	else if (kvw_slice_equal(name, KVW_SLICE("vllm:engine_sleep_state")))
		read_sleep_state(&line, reading);
}

/* --- results --- */

/* Counts engines that have stated their caches. *differ: their samples differ, so that each has its
 * own rank's blocks; otherwise each has those of all ranks. */
static size_t stated_caches(const struct reading *reading, bool *differ)
{
	const struct cache *first = NULL;
	size_t count = 0;

	*differ = false;
	for (size_t i = 0; i < reading->engine_count; i++) {
		const struct cache *cache = &reading->engines[i].cache;

		if (!cache->stated)
			continue;
		count++;
		first = first == NULL ? cache : first;
		*differ = *differ || cache->blocks != first->blocks;
	}
	return count;
}

/* Returns the usable blocks of one of several ranks. */
static uint64_t blocks_of_rank(const struct cache *cache, size_t ranks, bool differ)
{
	uint64_t blocks = cache->blocks;

	if (differ)
		return blocks - 1;
	if (ranks > 1 && cache->tokens > 0)
		blocks = cache->tokens / cache->block_size;
	else if (blocks % ranks == 0)
		blocks /= ranks;
	return blocks > 0 ? blocks - 1 : 0;
}

/* Adds one engine's sums to the page's. */
static void add_engine(struct engine *all, const struct engine *engine)
{
	for (size_t i = 0; i < sizeof(series) / sizeof(series[0]); i++) {
		struct sum *sum = (struct sum *)((char *)all + series[i].offset);
		const struct sum *own =
			(const struct sum *)((const char *)engine + series[i].offset);

		if (i > 0 && series[i - 1].offset == series[i].offset)
			continue; /* another name for the same sum */
		sum->total += own->total;
		sum->count += own->count;
	}
	all->asleep = all->asleep || engine->asleep;
}

static double total_of(const struct sum *sum)
{
	return sum->count > 0 ? sum->total : -1;
}

/* Copies all numbers but the cache's size. */
static void fill_result(const struct engine *from, struct kvw_scrape *out)
{
	/* usage_old: the metric's name before vLLM 0.10 */
	const struct sum *usage = from->usage.count > 0 ? &from->usage : &from->usage_old;

	out->kv_usage = usage->count > 0 ? usage->total / usage->count : -1;
	out->progress_known = from->progress.count > 0;
	out->progress = from->progress.total;
	out->running = from->running.total > 0;
	out->requests_waiting = total_of(&from->waiting);
	out->requests_running = total_of(&from->running);
	out->prompts = total_of(&from->prompts);
	out->prompt_tokens = total_of(&from->prompt_tokens);
	out->first_tokens = total_of(&from->first_tokens);
	out->cache_queries = total_of(&from->queries);
	out->cache_hits = total_of(&from->hits);
	out->external_hits = total_of(&from->external);
	out->draft_tokens = total_of(&from->drafts);
	out->draft_accepted = total_of(&from->accepted);
	out->blends = from->blends.total > 0;
	out->asleep = from->asleep;
}

static void fill_all(const struct reading *reading, struct kvw_scrape *out)
{
	struct engine all = {.asleep = false};
	bool differ, known;
	size_t ranks = stated_caches(reading, &differ);

	*out = reading->all;
	known = ranks > 0 && !reading->overflow;
	for (size_t i = 0; i < reading->engine_count; i++) {
		const struct engine *engine = &reading->engines[i];

		add_engine(&all, engine);
		if (!engine->cache.stated)
			continue;
		known = known && engine->cache.known;
		if (!known)
			continue;
		out->capacity_tokens += blocks_of_rank(&engine->cache, ranks, differ) *
					engine->cache.block_size;
		if (engine->cache.block_size > out->block_size)
			out->block_size = (uint32_t)engine->cache.block_size;
	}
	out->capacity_known = known;
	if (!known)
		out->capacity_tokens = out->block_size = 0;
	fill_result(&all, out);
}

static int compare_ranks(const void *a, const void *b)
{
	const struct kvw_scraped_rank *x = a, *y = b;

	return (x->global > y->global) - (x->global < y->global);
}

/* Fills the ranks: engines whose label is a number and that report running requests. */
static void fill_ranks(const struct reading *reading, struct kvw_scrape_page *page)
{
	bool differ;
	size_t ranks = stated_caches(reading, &differ);

	page->rank_count = 0;
	for (size_t i = 0; i < reading->engine_count; i++) {
		const struct engine *engine = &reading->engines[i];
		struct kvw_scraped_rank rank = {.global = 0};
		uint64_t global;

		if (engine->running.count == 0 || !parse_count(engine->name, UINT16_MAX, &global))
			continue;
		if (page->rank_count == KVW_RANKS_MOST) {
			page->more_ranks = true;
			break;
		}
		rank.global = (uint32_t)global;
		rank.said = reading->all;
		fill_result(engine, &rank.said);
		rank.said.capacity_known = engine->cache.known;
		if (engine->cache.known) {
			rank.said.block_size = (uint32_t)engine->cache.block_size;
			rank.said.capacity_tokens =
				blocks_of_rank(&engine->cache, ranks, differ) *
				engine->cache.block_size;
		}
		page->ranks[page->rank_count++] = rank;
	}
	qsort(page->ranks, page->rank_count, sizeof(page->ranks[0]), compare_ranks);
}

static void read_page(const char *text, size_t len, struct reading *reading)
{
	const char *at = text, *end = text + len;

	*reading = (struct reading){.last = 0};
	while (at < end) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));

		if (stop == NULL)
			stop = end;
		read_line((struct cursor){at, stop}, reading);
		at = stop + 1;
	}
}

void kvw_scrape_metrics(const char *text, size_t len, struct kvw_scrape *out)
{
	struct reading reading;

	read_page(text, len, &reading);
	fill_all(&reading, out);
	free(reading.engines);
}

void kvw_scrape_ranks(const char *text, size_t len, struct kvw_scrape_page *out)
{
	struct reading reading;

	read_page(text, len, &reading);
	fill_all(&reading, &out->all);
	out->more_ranks = false;
	fill_ranks(&reading, out);
	free(reading.engines);
}

/* One entry of a list of models. */
struct listed {
	const char *name;           /* borrowed from the JSON tree */
	struct kvw_model_card card; /* likewise */
};

static int compare_listed(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* Copies the names in order; of equal names the first is kept. */
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

/* Copies a text of the entry. NULL: there is none, or it is too long. */
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
