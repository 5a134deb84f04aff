/* evict_made.c - workloads that need no trace. */
#include <stdlib.h>
#include <string.h>

#include "bench/evict/evict_made.h"
#include "bench/load/mem.h"
#include "bench/load/text.h"

#define ONCE_CHUNKS 64 /* mean number of chunks of a prompt that comes only once */
#define MOST_CHUNKS 256

const struct kvb_made kvb_made[] = {
	{.name = "chat",
		.requests = 12000,
		.system_prompts = 20,
		.system_chunks = 3,
		.turns = 5,
		.turn_chunks = 4,
		.open = 300,
		.once = 10,
		.what = "conversations of five turns over twenty shared beginnings"},
	{.name = "documents",
		.requests = 6000,
		.documents = 600,
		.document_chunks = 40,
		.turns = 1,
		.turn_chunks = 1,
		.open = 1,
		.once = 0,
		.what = "questions about documents, a few of which are asked about often"},
	{.name = "flood",
		.requests = 9000,
		.system_prompts = 5,
		.system_chunks = 4,
		.turns = 8,
		.turn_chunks = 3,
		.open = 100,
		.once = 40,
		.what = "conversations, mixed with long prompts that come only once"},
	{0},
};

/* A conversation: the ids of its chunks so far. */
struct talk {
	uint64_t ids[MOST_CHUNKS];
	uint32_t count;
	uint32_t turns; /* left */
};

struct maker {
	const struct kvb_made *made;
	uint64_t random;
	uint64_t fresh; /* id not used yet */
	struct talk *talks;
	struct kvb_trace trace;
};

const struct kvb_made *kvb_made_find(const char *name)
{
	for (const struct kvb_made *m = kvb_made; m->name != NULL; m++)
		if (strcmp(m->name, name) == 0)
			return m;
	return NULL;
}

/* Returns a random number from 0 to count - 1; the n-th of them has the weight 1 / n. */
static uint32_t zipf(struct maker *m, uint32_t count)
{
	double sum = 0, at;

	for (uint32_t i = 0; i < count; i++)
		sum += 1.0 / (i + 1);
	at = kvb_random_unit(&m->random) * sum;
	for (uint32_t i = 0; i < count; i++) {
		at -= 1.0 / (i + 1);
		if (at < 0)
			return i;
	}
	return count - 1;
}

/* At least 1. */
static uint32_t about(struct maker *m, uint32_t mean)
{
	return 1 + (uint32_t)kvb_random_exponential(&m->random, mean > 1 ? mean - 1 : 0.01);
}

static void add_fresh(struct maker *m, struct talk *talk, uint32_t count)
{
	for (uint32_t i = 0; i < count && talk->count < MOST_CHUNKS; i++)
		talk->ids[talk->count++] = m->fresh++;
}

/* Adds the n-th shared chain of a kind; ids of the two kinds differ from each other and from fresh
 * ones. */
static void add_shared(struct talk *talk, uint64_t kind, uint32_t which, uint32_t count)
{
	for (uint32_t i = 0; i < count && talk->count < MOST_CHUNKS; i++)
		talk->ids[talk->count++] = kind << 48 | (uint64_t)which << 16 | i;
}

static void start_talk(struct maker *m, struct talk *talk)
{
	const struct kvb_made *made = m->made;

	talk->count = 0;
	talk->turns = about(m, made->turns);
	if (made->system_prompts > 0)
		add_shared(talk, 1, zipf(m, made->system_prompts), made->system_chunks);
	if (made->documents > 0)
		add_shared(talk, 2, zipf(m, made->documents), made->document_chunks);
}

static void emit(struct maker *m, const struct talk *talk)
{
	struct kvb_trace_row *row = &m->trace.rows[m->trace.count++];

	*row = (struct kvb_trace_row){
		.timestamp_ms = (int64_t)m->trace.count,
		.input_tokens = talk->count * 512,
		.output_tokens = 1,
		.ids = kvb_alloc(talk->count, sizeof(uint64_t)),
		.id_count = talk->count,
	};
	memcpy(row->ids, talk->ids, talk->count * sizeof(uint64_t));
}

static void one_request(struct maker *m)
{
	struct talk *talk = &m->talks[kvb_random(&m->random) % m->made->open];

	if (kvb_random(&m->random) % 100 < m->made->once) {
		struct talk once = {0};

		add_fresh(m, &once, about(m, ONCE_CHUNKS));
		emit(m, &once);
		return;
	}
	if (talk->turns == 0)
		start_talk(m, talk);
	add_fresh(m, talk, about(m, m->made->turn_chunks));
	emit(m, talk);
	talk->turns--;
}

void kvb_made_trace(const struct kvb_made *made, uint64_t seed, struct kvb_trace *out)
{
	struct maker m = {.made = made, .random = seed};

	m.talks = kvb_alloc(made->open, sizeof(*m.talks));
	m.trace.rows = kvb_alloc(made->requests, sizeof(*m.trace.rows));
	for (uint32_t i = 0; i < made->requests; i++)
		one_request(&m);
	free(m.talks);
	*out = m.trace;
}
