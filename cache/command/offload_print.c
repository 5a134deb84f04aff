/*
 * offload_print.c - prints the results of `kvtier size --gpu`, as text or as JSON.
 *
 * The table has the form of the one in which the documentation of SageMaker's LMI containers
 * recommends LMCache, so that both can be compared.
 */
#include <inttypes.h>
#include <string.h>

#include "command/format.h"
#include "command/size.h"

/* --- text ------------------------------------------------------------------------------------- */

static void print_gpus(const struct kvt_offload *o, FILE *out)
{
	char a[KVT_FORMAT_BYTES];

	fprintf(out, "\nGPUs             %u x %s, %s each", o->count, o->gpu.name,
		kvt_format_size(a, (double)o->gpu.bytes));
	if (o->gpu.flops > 0)
		fprintf(out, " at %.0f GB/s, %.0f GB/s from CPU memory, %.0f TFLOP/s",
			o->gpu.memory_rate / 1e9, o->gpu.bus_rate / 1e9, o->gpu.flops / 1e12);
	fprintf(out, "\n                 %g %% of that for weights and KV (--gpu-share)\n",
		o->share * 100);
}

static void print_weights(const struct kvt_size *s, FILE *out)
{
	const struct kvt_offload *o = &s->offload;
	char a[KVT_FORMAT_BYTES];

	fprintf(out, "Weights          %s (%s)\n", kvt_format_size(a, (double)o->weights),
		o->weights_from);
	if (s->model.parameters > 0)
		fprintf(out, "                 %.3g G parameters, of which a token meets %.3g G\n",
			s->model.parameters / 1e9, s->model.active / 1e9);
}

static const char *tokens_text(char out[KVT_FORMAT_BYTES], double tokens)
{
	if (tokens >= KVT_OFFLOAD_ALL)
		snprintf(out, KVT_FORMAT_BYTES, "any number");
	else
		kvt_format_count(out, tokens);
	return out;
}

static void print_spreads(const struct kvt_offload *o, FILE *out)
{
	char a[KVT_FORMAT_BYTES], b[KVT_FORMAT_BYTES];

	fputs("\nTokens that fit the GPUs of one copy of the model\n", out);
	for (uint32_t i = 0; i < o->spread_count; i++) {
		const struct kvt_spread *s = &o->spreads[i];

		fprintf(out, "  on %4u: ", s->gpus);
		if (s->kv_bytes <= 0)
			fputs("the weights do not fit\n", out);
		else
			fprintf(out, "%10s for KV = %s tokens; %u cop%s\n",
				kvt_format_size(a, s->kv_bytes), tokens_text(b, s->tokens),
				s->copies, s->copies == 1 ? "y" : "ies");
	}
}

static void print_table(const struct kvt_size *s, FILE *out)
{
	struct kvt_offload_row rows[KVT_OFFLOAD_ROWS];
	uint32_t count = kvt_offload_table(&s->offload, rows);
	char from[KVT_FORMAT_BYTES], to[KVT_FORMAT_BYTES], size[KVT_FORMAT_BYTES] = "?";

	if (s->model.parameters > 0)
		snprintf(size, sizeof(size), "%.3gB", s->model.parameters / 1e9);
	fputs("\n|Model Size|Context Length|Recommendation|\n|---|---|---|\n", out);
	for (uint32_t i = 0; i < count; i++) {
		fprintf(out, "|%s|", i == 0 ? size : "");
		kvt_format_count(from, rows[i].from);
		kvt_format_count(to, rows[i].to);
		if (rows[i].from > 0 && rows[i].to > 0)
			fprintf(out, "%s - %s", from, to);
		else if (rows[i].to > 0)
			fprintf(out, "< %s", to);
		else
			fprintf(out, "%s%s", rows[i].from > 0 ? "> " : "any",
				rows[i].from > 0 ? from : "");
		fprintf(out, "|%s|\n", rows[i].recommendation);
	}
}

static void print_sums(const struct kvt_size *s, FILE *out)
{
	const struct kvt_offload *o = &s->offload;
	uint64_t token = kvt_model_token_bytes(&s->model, KVT_LAYER_FULL, 1) +
			 kvt_model_token_bytes(&s->model, KVT_LAYER_WINDOW, 1);
	char a[KVT_FORMAT_BYTES], b[KVT_FORMAT_BYTES], c[KVT_FORMAT_BYTES];

	fprintf(out, "  GPUs   (%u x %s x %g - %s) / (%u x %" PRIu64 " bytes) = %s\n", o->chosen.gpus,
		kvt_format_size(a, (double)o->gpu.bytes), o->share,
		kvt_format_size(b, (double)o->weights), o->chosen.gpus,
		s->full_bytes + s->window_bytes, tokens_text(c, o->chosen.tokens));
	fprintf(out, "  memory %s (%s) x %g / %" PRIu64 " bytes = %s\n",
		kvt_format_size(a, (double)o->ram), o->ram_from, o->share, token,
		tokens_text(c, o->memory_tokens));
	if (o->disk_tokens > 0)
		fprintf(out, "  disk   %s x %g / %" PRIu64 " bytes = %s\n",
			kvt_format_size(a, (double)o->disk), o->share, token,
			tokens_text(c, o->disk_tokens));
	fputs("  A context is all that is to be found again: one prompt, or those of many users together.\n"
	      "  Memory and disk count once for the node (kvtierd, node.share); with caches of their own, copies\n"
	      "  of the model divide them.\n",
		out);
}

/* Prints "12.3 s" or "25 min", and how many times faster that is than computing. */
static void print_seconds(FILE *out, double seconds, double compute)
{
	char text[KVT_FORMAT_BYTES] = "-", times[KVT_FORMAT_BYTES] = "";

	if (seconds >= 120)
		kvt_format_age(text, seconds);
	else if (seconds > 0)
		snprintf(text, sizeof(text), "%.3g s", seconds);
	if (seconds > 0 && compute > 0)
		snprintf(times, sizeof(times), "%.*f x", compute / seconds < 10, compute / seconds);
	fprintf(out, "%10s %9s", text, times);
}

/* Finds the lengths at which a row begins; the last one is all that fits. */
static uint32_t lengths_of(const struct kvt_offload *o, double lengths[KVT_OFFLOAD_ROWS])
{
	const double all[KVT_OFFLOAD_ROWS] = {o->chosen.tokens, o->memory_tokens, o->disk_tokens};
	uint32_t n = 0;

	for (uint32_t i = 0; i < KVT_OFFLOAD_ROWS; i++)
		if (all[i] > 0 && all[i] < KVT_OFFLOAD_ALL)
			lengths[n++] = all[i];
	return n;
}

static void print_times(const struct kvt_size *s, FILE *out)
{
	const struct kvt_offload *o = &s->offload;
	double lengths[KVT_OFFLOAD_ROWS];
	uint32_t count = lengths_of(o, lengths);
	char a[KVT_FORMAT_BYTES];

	if (o->prefill_flops <= 0 || o->memory_rate <= 0) {
		fputs("\nWhether fetching is faster than computing: --flops and --l1-rate say what such a GPU does.\n",
			out);
		return;
	}
	fprintf(out, "\n%-6s%10s %20s %20s\n", "Tokens", "computed", "from CPU memory", "from disk");
	for (uint32_t i = 0; i < count; i++) {
		double compute = kvt_offload_compute_s(o, &s->model, lengths[i]);

		fprintf(out, "%-6s", kvt_format_count(a, lengths[i]));
		print_seconds(out, compute, 0);
		print_seconds(out,
			lengths[i] <= o->memory_tokens
				? kvt_offload_fetch_s(&s->model, lengths[i], o->memory_rate)
				: 0,
			compute);
		print_seconds(out, kvt_offload_fetch_s(&s->model, lengths[i], o->disk_rate), compute);
		fputc('\n', out);
	}
	fprintf(out, "  computed: 2 x parameters for each token, and attention over all before it, at %g of the flop/s\n",
		s->utilisation);
	if (o->disk_rate <= 0)
		fputs("  (--nvme-rate gives the disk's rate; `kvtier bench` measures it)\n", out);
	if (o->gpu.memory_rate > 0)
		fprintf(out, "  A token that is generated after %s of them takes at least %.3g ms (weights and KV are read once).\n",
			kvt_format_count(a, lengths[0]),
			1e3 * ((double)o->weights + o->chosen.kv_bytes) /
				(o->gpu.memory_rate * o->chosen.gpus));
}

void kvt_offload_print(const struct kvt_size *s, FILE *out)
{
	const struct kvt_offload *o = &s->offload;

	print_gpus(o, out);
	print_weights(s, out);
	print_spreads(o, out);
	fprintf(out, "\nWhen to offload, with one copy on %u GPU%s (--tensor-parallel N chooses)\n",
		o->chosen.gpus, o->chosen.gpus == 1 ? "" : "s");
	print_table(s, out);
	fputc('\n', out);
	print_sums(s, out);
	print_times(s, out);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *spread_json(const struct kvt_spread *s)
{
	return json_pack("{s:I, s:I, s:f, s:f}", "gpus", (json_int_t)s->gpus, "copies",
		(json_int_t)s->copies, "kv_bytes", s->kv_bytes, "tokens", s->tokens);
}

static json_t *table_json(const struct kvt_offload *o)
{
	struct kvt_offload_row rows[KVT_OFFLOAD_ROWS];
	uint32_t count = kvt_offload_table(o, rows);
	json_t *table = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(table,
			json_pack("{s:f, s:o, s:s}", "from", rows[i].from, "to",
				rows[i].to > 0 ? json_real(rows[i].to) : json_null(),
				"recommendation", rows[i].recommendation));
	return table;
}

json_t *kvt_offload_json(const struct kvt_size *s)
{
	const struct kvt_offload *o = &s->offload;
	double lengths[KVT_OFFLOAD_ROWS];
	uint32_t count = lengths_of(o, lengths);
	json_t *spreads = json_array(), *contexts = json_array();

	for (uint32_t i = 0; i < o->spread_count; i++)
		json_array_append_new(spreads, spread_json(&o->spreads[i]));
	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(contexts,
			json_pack("{s:f, s:f, s:f, s:f}", "tokens", lengths[i], "compute_s",
				kvt_offload_compute_s(o, &s->model, lengths[i]), "memory_s",
				kvt_offload_fetch_s(&s->model, lengths[i], o->memory_rate),
				"disk_s",
				kvt_offload_fetch_s(&s->model, lengths[i], o->disk_rate)));
	return json_pack(
		"{s:s, s:I, s:I, s:f, s:I, s:s, s:f, s:f, s:I, s:I, s:o, s:o, s:f, s:f, s:o, s:o}",
		"gpu", o->gpu.name, "gpus", (json_int_t)o->count, "gpu_bytes",
		(json_int_t)o->gpu.bytes, "share", o->share, "weight_bytes", (json_int_t)o->weights,
		"weights_from", o->weights_from, "parameters", s->model.parameters, "active",
		s->model.active, "ram_bytes", (json_int_t)o->ram, "disk_bytes", (json_int_t)o->disk,
		"spreads", spreads, "chosen", spread_json(&o->chosen), "memory_tokens",
		o->memory_tokens, "disk_tokens", o->disk_tokens, "table", table_json(o), "contexts",
		contexts);
}
