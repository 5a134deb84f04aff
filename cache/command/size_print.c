/*
 * size_print.c - prints the results of `kvtier size`, as text or as JSON.
 *
 * Every figure stands next to its calculation, so that a reader can insert another number.
 */
#include <inttypes.h>
#include <string.h>

#include "command/advice.h"
#include "command/format.h"
#include "command/size.h"

static const double example_rates[] = {2000, 5000, 10000, 20000, 50000};
#define EXAMPLE_COUNT (sizeof(example_rates) / sizeof(example_rates[0]))

/* Returns the bytes of a token in all layers while it is within the window. */
static uint64_t token_bytes(const struct kvt_size *s)
{
	return s->full_bytes + s->window_bytes;
}

/* --- text ------------------------------------------------------------------------------------- */

static void print_groups(const struct kvt_size *s, FILE *out)
{
	const struct kvt_model *m = &s->model;

	for (uint32_t i = 0; i < m->group_count; i++) {
		const struct kvt_layer_group *g = &m->groups[i];
		uint32_t heads = g->heads > s->tensor ? g->heads / s->tensor : 1;

		fprintf(out, "  %u %s layer%s x ", g->count,
			g->kind == KVT_LAYER_FULL ? "full" : "window", g->count == 1 ? "" : "s");
		if (m->latent)
			fprintf(out, "(%u latent + %u rotated) x %u bytes", g->key_dim,
				g->value_dim, m->element_bytes);
		else
			fprintf(out, "%u head%s x (%u + %u) x %u bytes", heads,
				heads == 1 ? "" : "s", g->key_dim, g->value_dim, m->element_bytes);
		if (g->extra != 0)
			fprintf(out, " + %u bytes of index each", g->extra);
		fputc('\n', out);
	}
	if (m->state_layers > 0)
		fprintf(out, "  %u layers keep a state for each sequence instead, not counted\n",
			m->state_layers);
	if (m->shared_layers > 0)
		fprintf(out, "  %u layers use the keys and values of others\n", m->shared_layers);
}

static void print_model(const struct kvt_size *s, FILE *out)
{
	const struct kvt_model *m = &s->model;
	char a[KVT_FORMAT_BYTES];

	fprintf(out, "%s: %u layers, keys and values in %s%s\n", m->name, m->layers, m->dtype,
		m->assumed ? " (assumed; --dtype says otherwise)" : "");
	print_groups(s, out);
	if (s->tensor > 1)
		fprintf(out, "  of each of %u tensor-parallel ranks%s\n", s->tensor,
			m->latent ? "; latent attention: all keep the same, store it once" : "");
	fprintf(out, "KV per token     %" PRIu64 " bytes = %s\n", token_bytes(s),
		kvt_format_size(a, (double)token_bytes(s)));
	if (s->window_bytes > 0)
		fprintf(out,
			"                 %" PRIu64 " bytes for ever, %" PRIu64
			" bytes for the last %u tokens only\n",
			s->full_bytes, s->window_bytes, m->window);
	fprintf(out, "Chunk            %u tokens = %s\n", s->chunk_tokens,
		kvt_format_size(a, (double)token_bytes(s) * s->chunk_tokens));
	fprintf(out, "Context          %" PRIu64 " tokens = %s\n", s->context,
		kvt_format_size(a, (double)kvt_model_context_bytes(m, s->context, s->tensor)));
}

static void print_room(const struct kvt_size *s, FILE *out)
{
	uint64_t context = kvt_model_context_bytes(&s->model, s->context, s->tensor);
	char a[KVT_FORMAT_BYTES], b[KVT_FORMAT_BYTES];

	fputs("\nRoom on this machine", out);
	if (s->tensor > 1)
		fprintf(out, ", of each of %u ranks", s->tensor);
	fputc('\n', out);
	for (int i = 0; i < 2; i++) {
		const struct kvt_size_tier *t = &s->tiers[i];

		if (t->bytes == 0) {
			fprintf(out, "  %-5s -          %s\n", t->name, t->why);
			continue;
		}
		fprintf(out, "  %-5s %-10s = %s tokens, %.1f whole contexts\n        %s\n", t->name,
			kvt_format_size(a, (double)t->bytes),
			kvt_format_count(b, (double)t->bytes / (double)token_bytes(s)),
			context > 0 ? (double)t->bytes / (double)context : 0, t->why);
	}
}

static void print_retention(const struct kvt_size *s, FILE *out)
{
	static const struct {
		int seconds;
		const char *share;
	} gaps[] = {
		{KVT_REUSE_MEDIAN_S, "half"}, {KVT_REUSE_P90_S, "90 %"}, {KVT_REUSE_P99_S, "99 %"}};
	char a[KVT_FORMAT_BYTES];

	fprintf(out,
		"\nRoom that keeps every new token T seconds, where all prefill is of new tokens\n"
		"  T x prefill x KV per token; on published chat traces a prefix that came back "
		"had\n"
		"  come back within\n");
	for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++)
		fprintf(out, "  %4d s for %s: %d x %.0f x %" PRIu64 " = %s\n", gaps[i].seconds,
			gaps[i].share, gaps[i].seconds, s->prefill, token_bytes(s),
			kvt_format_size(a,
				kvt_retention_bytes(token_bytes(s), s->prefill, gaps[i].seconds)));
}

static void print_tiers(const struct kvt_size *s, double break_even, FILE *out)
{
	char a[KVT_FORMAT_BYTES];

	for (int i = 0; i < 2; i++) {
		const struct kvt_size_tier *t = &s->tiers[i];

		if (t->rate <= 0)
			fprintf(out,
				"  %-5s rate unknown: `kvtier bench` measures it, --%s-rate gives "
				"it\n",
				t->name, t->name);
		else if (break_even <= 0)
			fprintf(out, "  %-5s %s (%s)\n", t->name, kvt_format_rate(a, t->rate),
				t->where);
		else
			fprintf(out, "  %-5s %s (%s) = %.2f x B*\n        %s\n", t->name,
				kvt_format_rate(a, t->rate), t->where, t->rate / break_even,
				kvt_worth_text(kvt_worth_of(t->rate, break_even)));
	}
}

static void print_break_even(const struct kvt_size *s, FILE *out)
{
	double break_even = kvt_break_even(token_bytes(s), s->prefill);
	char a[KVT_FORMAT_BYTES];

	fputs("\nBreak-even: a tier saves time where it delivers KV faster than the engine makes "
	      "it\n"
	      "  B* = KV bytes per token x prefill tokens per second\n",
		out);
	if (s->flops > 0)
		fprintf(out,
			"  prefill = utilisation x flop/s / (2 x parameters) = %g x %g / (2 x %g) "
			"= "
			"%.0f\n",
			s->utilisation, s->flops, s->parameters, s->prefill);
	if (s->prefill > 0) {
		fprintf(out, "     = %" PRIu64 " x %.0f = %s\n", token_bytes(s), s->prefill,
			kvt_format_rate(a, break_even));
	} else {
		for (size_t i = 0; i < EXAMPLE_COUNT; i++)
			fprintf(out, "     = %" PRIu64 " x %5.0f = %s\n", token_bytes(s),
				example_rates[i],
				kvt_format_rate(
					a, kvt_break_even(token_bytes(s), example_rates[i])));
		fputs("  (--prefill gives the engine's own rate: tokens computed for prompts, by "
		      "second)\n",
			out);
	}
	print_tiers(s, break_even, out);
}

static void print_advice(const struct kvt_size *s, FILE *out)
{
	fputs("\nWhen to offload\n"
	      "  Fetching n tokens takes n x KV per token / rate, computing them n / prefill: the\n"
	      "  length of the prompt does not change which is less, only how much is saved.\n"
	      "  A rate ends at the narrowest part of the way, often the bus to the accelerator.\n"
	      "  Under load a fetch also leaves the accelerator to others, so that a tier below\n"
	      "  1 x B* can still pay; kvtier leaves such chunks to be computed unless\n"
	      "  control.fetch_when_slower is set. The engine's and the tiers' rates are learned\n"
	      "  while it runs; control.prefill_tokens_per_second is where it begins.\n",
		out);
	if (s->window_bytes > 0)
		fputs("  Windowed layers need only their last tokens: of a long prefix most "
		      "chunks\n"
		      "  are worth keeping for the full layers alone.\n",
			out);
}

void kvt_size_print(const struct kvt_size *s, FILE *out)
{
	print_model(s, out);
	if (token_bytes(s) == 0) {
		fputs("\nNo layer keeps keys and values: there is nothing to cache by token.\n",
			out);
		return;
	}
	if (s->offload.count > 0)
		kvt_offload_print(s, out);
	else
		print_room(s, out);
	print_break_even(s, out);
	if (s->prefill > 0)
		print_retention(s, out);
	print_advice(s, out);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *groups_json(const struct kvt_model *m)
{
	json_t *groups = json_array();

	for (uint32_t i = 0; i < m->group_count; i++) {
		const struct kvt_layer_group *g = &m->groups[i];

		json_array_append_new(groups,
			json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "kind",
				g->kind == KVT_LAYER_FULL ? "full" : "window", "layers",
				(json_int_t)g->count, "kv_heads", (json_int_t)g->heads, "key_dim",
				(json_int_t)g->key_dim, "value_dim", (json_int_t)g->value_dim,
				"extra_bytes", (json_int_t)g->extra));
	}
	return groups;
}

static const char *worth_word(enum kvt_worth worth)
{
	static const char *const words[] = {
		[KVT_WORTH_UNKNOWN] = "unknown",
		[KVT_WORTH_ALWAYS] = "always",
		[KVT_WORTH_LITTLE] = "little",
		[KVT_WORTH_LOADED] = "under load",
	};

	return words[worth];
}

static json_t *tiers_json(const struct kvt_size *s, double break_even)
{
	json_t *tiers = json_object();

	for (int i = 0; i < 2; i++) {
		const struct kvt_size_tier *t = &s->tiers[i];

		json_object_set_new(tiers, t->name,
			json_pack("{s:I, s:I, s:s, s:f, s:s}", "bytes", (json_int_t)t->bytes,
				"tokens",
				(json_int_t)(token_bytes(s) != 0 ? t->bytes / token_bytes(s) : 0),
				"why", t->why, "bytes_per_second", t->rate, "worth",
				worth_word(kvt_worth_of(t->rate, break_even))));
	}
	return tiers;
}

bool kvt_size_print_json(const struct kvt_size *s, FILE *out)
{
	const struct kvt_model *m = &s->model;
	double break_even = kvt_break_even(token_bytes(s), s->prefill);
	json_t *root = json_pack(
		"{s:s, s:I, s:s, s:b, s:o, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:f, s:f, s:o}",
		"model", m->name, "layers", (json_int_t)m->layers, "dtype", m->dtype,
		"dtype_assumed", (int)m->assumed, "groups", groups_json(m), "state_layers",
		(json_int_t)m->state_layers, "shared_layers", (json_int_t)m->shared_layers,
		"window", (json_int_t)m->window, "tensor_parallel", (json_int_t)s->tensor, "latent",
		(int)m->latent, "bytes_per_token", (json_int_t)token_bytes(s),
		"full_bytes_per_token", (json_int_t)s->full_bytes, "window_bytes_per_token",
		(json_int_t)s->window_bytes, "chunk_bytes",
		(json_int_t)(token_bytes(s) * s->chunk_tokens), "context_tokens",
		(json_int_t)s->context, "context_bytes",
		(json_int_t)kvt_model_context_bytes(m, s->context, s->tensor),
		"prefill_tokens_per_second", s->prefill, "break_even_bytes_per_second", break_even,
		"tiers", tiers_json(s, break_even));
	bool done = root != NULL &&
		    (s->offload.count == 0 ||
			    json_object_set_new(root, "offload", kvt_offload_json(s)) == 0) &&
		    json_dumpf(root, out, JSON_INDENT(2)) == 0;

	if (done)
		fputc('\n', out);
	json_decref(root);
	return done;
}
