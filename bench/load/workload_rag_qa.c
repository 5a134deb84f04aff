/*
 * workload_rag_qa.c - questions on a few of many documents, in any order.
 *
 * What retrieval sends: a system prompt, some documents of a fixed set, and a question of the
 * request's own. Which documents and in which order is drawn again for each request, so a cache of
 * prefixes finds the system prompt and at times the first document; a cache of fragments finds all of
 * them. The set's defaults, 46 documents of 10,000 tokens, are those of LMCache's published long-document
 * figures; the workload is kvbench's own.
 *
 * Between the parts stands a separator, at which such caches cut (LMCache's blend_special_str), or each
 * document is a message of its own. Documents may be divided into topics, document d to topic d modulo their
 * number: then a request's are of one topic, drawn with it. The warm-up asks every document once, alone.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/load/workload.h"

#define MAX_TOKENS 100000000 /* of all documents */

struct rag_qa {
	struct kvb_workload base;
	const struct kvb_engine_options *options;
	struct kvb_word_pool pool;
	struct kvb_buf system_prompt; /* empty: none */
	struct kvb_buf *documents;    /* owned, `count` of them */
	uint32_t *chosen;             /* of the request that is made; room for `count` */
	uint32_t count, each;         /* number of documents; documents of a request */
	uint32_t topics;
	struct kvb_py_random random;  /* random state for choices and questions */
};

static void destroy(struct kvb_workload *workload)
{
	struct rag_qa *rag = (struct rag_qa *)workload;

	if (rag == NULL)
		return;
	for (uint32_t i = 0; i < rag->count; i++)
		kvb_buf_finish(&rag->documents[i]);
	free(rag->documents);
	free(rag->chosen);
	kvb_buf_finish(&rag->system_prompt);
	kvb_word_pool_finish(&rag->pool);
	free(rag);
}

static void make_texts(struct rag_qa *rag)
{
	const struct kvb_engine_options *o = rag->options;
	struct kvb_py_random random;

	kvb_py_seed(&random, o->seed);
	if (o->rag.system_prompt > 0)
		kvb_word_pool_text(&rag->pool, &random, (uint64_t)o->rag.system_prompt,
			&rag->system_prompt);
	for (uint32_t i = 0; i < rag->count; i++) {
		kvb_py_seed(&random, o->seed + 1 + i);
		kvb_word_pool_text(&rag->pool, &random, (uint64_t)o->rag.document_length,
			&rag->documents[i]);
	}
	kvb_py_seed(&rag->random, o->seed);
}

static enum kvw_err create(
	const struct kvb_engine_options *options, struct kvb_workload **out, FILE *error)
{
	double tokens = (double)options->rag.documents * (double)options->rag.document_length;
	struct rag_qa *rag;
	enum kvw_err err;

	if (tokens > MAX_TOKENS) {
		fprintf(error, "kvbench: %.0f tokens of documents, at most %d are possible\n",
			tokens, MAX_TOKENS);
		return KVW_EINVAL;
	}
	if (options->rag.each > options->rag.documents / options->rag.topics) {
		fprintf(error,
			"kvbench: --rag-documents-per-request is %lld, but there are %lld "
			"documents in %lld topics\n",
			(long long)options->rag.each, (long long)options->rag.documents,
			(long long)options->rag.topics);
		return KVW_EINVAL;
	}
	rag = kvb_alloc(1, sizeof(*rag));
	err = kvb_workload_words(options, &rag->pool, error);
	if (err != KVW_OK) {
		free(rag);
		return err;
	}
	rag->base.ops = &kvb_rag_qa;
	rag->base.planned = (uint64_t)options->rag.requests;
	rag->base.warm_count = (uint64_t)options->rag.documents;
	rag->base.at_once = (uint64_t)options->rag.inflight;
	rag->options = options;
	rag->count = (uint32_t)options->rag.documents;
	rag->each = (uint32_t)options->rag.each;
	rag->topics = (uint32_t)options->rag.topics;
	rag->documents = kvb_alloc(rag->count, sizeof(*rag->documents));
	rag->chosen = kvb_alloc(rag->count, sizeof(*rag->chosen));
	make_texts(rag);
	*out = &rag->base;
	return KVW_OK;
}

static void describe(const struct kvb_workload *workload, FILE *out)
{
	const struct rag_qa *rag = (const struct rag_qa *)workload;
	const struct kvb_engine_options *o = rag->options;

	fprintf(out,
		"  requests %llu, each of %u out of %u documents of %lld tokens in any order, %s, "
		"%lld under way\n  words from %s: %u\n",
		(unsigned long long)workload->planned, rag->each, rag->count,
		(long long)o->rag.document_length,
		o->rag.layout == KVB_RAG_MESSAGES ? "a message each" : "in one message",
		(long long)o->rag.inflight,
		rag->pool.from_model ? "the tokenizer" : "the built-in list (no --tokenizer)",
		rag->pool.count);
}

/* Appends the system prompt, these documents and a question. */
static void add_messages(const struct rag_qa *rag, const uint32_t *documents, uint32_t count,
	const struct kvb_buf *question, struct kvb_ask *out)
{
	const char *separator = rag->options->rag.separator;
	struct kvb_buf text = {0};

	if (rag->system_prompt.len > 0)
		kvb_ask_message(out, "system", rag->system_prompt.data, rag->system_prompt.len);
	for (uint32_t i = 0; i < count; i++) {
		const struct kvb_buf *document = &rag->documents[documents[i]];

		if (rag->options->rag.layout == KVB_RAG_MESSAGES) {
			kvb_ask_message(out, "user", document->data, document->len);
			continue;
		}
		kvb_buf_add(&text, document->data, document->len);
		kvb_buf_text(&text, separator);
	}
	kvb_buf_add(&text, question->data, question->len);
	kvb_ask_message(out, "user", text.data, text.len);
	kvb_buf_finish(&text);
}

static void warm(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out)
{
	struct rag_qa *rag = (struct rag_qa *)workload;
	struct kvb_buf question = {0};
	uint32_t document = (uint32_t)n;

	*out = (struct kvb_ask){.max_tokens = 1, .session = n + 1};
	snprintf(out->id, sizeof(out->id), "warmup_doc%llu", (unsigned long long)n);
	kvb_buf_text(&question, "What is it about?");
	add_messages(rag, &document, 1, &question, out);
	kvb_buf_finish(&question);
}

/* Chooses the documents of the next request: writes rag->chosen. */
static void choose(struct rag_qa *rag)
{
	uint32_t topic = 0;

	if (rag->topics > 1)
		topic = (uint32_t)kvb_py_randbelow(&rag->random, rag->topics);
	kvb_py_sample(&rag->random, (rag->count - topic + rag->topics - 1) / rag->topics,
		rag->chosen, rag->each);
	for (uint32_t i = 0; i < rag->each; i++)
		rag->chosen[i] = rag->chosen[i] * rag->topics + topic;
}

static enum kvb_turn next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns)
{
	struct rag_qa *rag = (struct rag_qa *)workload;
	unsigned long long n = rag->base.asked;
	struct kvb_buf question = {0};

	(void)wake_ns;
	if (rag->base.asked == rag->base.planned)
		return KVB_DONE;
	*out = (struct kvb_ask){
		.max_tokens = rag->options->rag.max_output, .session = n + 1, .due_ns = now_ns};
	snprintf(out->id, sizeof(out->id), "rag%llu", n);
	choose(rag);
	kvb_buf_printf(&question, "Question %llu: ", n);
	kvb_word_pool_text(
		&rag->pool, &rag->random, (uint64_t)rag->options->rag.question, &question);
	add_messages(rag, rag->chosen, rag->each, &question, out);
	kvb_buf_finish(&question);
	return KVB_ASK;
}

const struct kvb_workload_ops kvb_rag_qa = {
	.name = "rag-qa",
	.create = create,
	.describe = describe,
	.warm = warm,
	.next = next,
	.destroy = destroy,
};
