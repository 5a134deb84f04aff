/*
 * workload_long_doc_qa.c - questions on long documents, some under way at a time.
 *
 * As many documents as fit the volume. The warm-up sends each once; then every document gets its
 * questions, in Python's shuffle of the seed or question by question (tile). A document's text
 * begins with its number, so no two share a prefix beyond "Document "; the question comes last, so
 * that all of a document's requests share the document.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/load/workload.h"

static const char *const questions[] = {"What is this document about?", "Summarize the key points.",
	"What is the main topic discussed?", "Provide a brief overview."};

struct long_doc_qa {
	struct kvb_workload base;
	const struct kvb_engine_options *options;
	uint32_t documents;
	uint32_t *order; /* order of the requests, each as question * documents + document */
};

static void destroy(struct kvb_workload *workload)
{
	struct long_doc_qa *qa = (struct long_doc_qa *)workload;

	if (qa != NULL)
		free(qa->order);
	free(qa);
}

static void make_order(struct long_doc_qa *qa)
{
	struct kvb_py_random random;

	qa->order = kvb_alloc(qa->base.planned, sizeof(*qa->order));
	for (uint32_t i = 0; i < qa->base.planned; i++)
		qa->order[i] = i;
	if (qa->options->ldqa.shuffle != KVB_SHUFFLE_RANDOM)
		return;
	kvb_py_seed(&random, qa->options->seed);
	kvb_py_shuffle(&random, qa->order, qa->base.planned);
}

static enum kvw_err create(
	const struct kvb_engine_options *options, struct kvb_workload **out, FILE *error)
{
	uint64_t documents = kvb_fits(
		options->kv_cache_volume_gb, options->tokens_per_gb, options->ldqa.document_length);
	double requests = (double)documents * (double)options->ldqa.queries_per_document;
	struct long_doc_qa *qa;

	if (kvb_check_count(kvb_long_doc_qa.name, requests, error) != KVW_OK)
		return KVW_EINVAL;
	qa = kvb_alloc(1, sizeof(*qa));
	qa->base.ops = &kvb_long_doc_qa;
	qa->base.planned = (uint64_t)requests;
	qa->base.warm_count = documents;
	qa->base.at_once = (uint64_t)options->ldqa.inflight;
	qa->options = options;
	qa->documents = (uint32_t)documents;
	make_order(qa);
	*out = &qa->base;
	return KVW_OK;
}

static void describe(const struct kvb_workload *workload, FILE *out)
{
	const struct long_doc_qa *qa = (const struct long_doc_qa *)workload;
	const struct kvb_engine_options *o = qa->options;

	fprintf(out, "  documents %u of %lld tokens, %lld questions each, %s, %lld under way\n",
		qa->documents, (long long)o->ldqa.document_length,
		(long long)o->ldqa.queries_per_document,
		o->ldqa.shuffle == KVB_SHUFFLE_RANDOM ? "in random order" : "question by question",
		(long long)o->ldqa.inflight);
}

static void add_document(const struct long_doc_qa *qa, uint32_t document, struct kvb_buf *out)
{
	int64_t words = qa->options->ldqa.document_length - 10;

	kvb_buf_printf(out, "Document %u: ", document);
	kvb_fill(out, "hi", words > 1 ? words : 1);
}

static void warm(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out)
{
	struct long_doc_qa *qa = (struct long_doc_qa *)workload;
	struct kvb_buf text = {0};

	*out = (struct kvb_ask){.max_tokens = 1, .session = n + 1};
	snprintf(out->id, sizeof(out->id), "warmup_doc%llu", (unsigned long long)n);
	add_document(qa, (uint32_t)n, &text);
	kvb_ask_message(out, "user", text.data, text.len);
	kvb_buf_finish(&text);
}

static enum kvb_turn next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns)
{
	struct long_doc_qa *qa = (struct long_doc_qa *)workload;
	uint32_t document, question;
	struct kvb_buf text = {0};

	(void)wake_ns;
	if (qa->base.asked == qa->base.planned)
		return KVB_DONE;
	document = qa->order[qa->base.asked] % qa->documents;
	question = qa->order[qa->base.asked] / qa->documents;
	*out = (struct kvb_ask){.max_tokens = qa->options->ldqa.max_output,
		.session = (uint64_t)document + 1,
		.due_ns = now_ns};
	snprintf(out->id, sizeof(out->id), "doc%u_q%u", document, question);
	add_document(qa, document, &text);
	kvb_buf_printf(&text, "\n\nQuestion %u: %s", question, questions[question % 4]);
	kvb_ask_message(out, "user", text.data, text.len);
	kvb_buf_finish(&text);
	return KVB_ASK;
}

const struct kvb_workload_ops kvb_long_doc_qa = {
	.name = "long-doc-qa",
	.needs_volume = true,
	.create = create,
	.describe = describe,
	.warm = warm,
	.next = next,
	.destroy = destroy,
};
