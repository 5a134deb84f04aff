/*
 * compare.c - compares two groups, and computes whether they differ by more than chance.
 */
#include "groups/compare.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/standard_out.h"

#define Z     1.959964 /* for an interval of 95 % */
#define LEAST 30       /* a verdict needs at least this many samples of each group */

/* --- estimates --- */

/* Returns the variance of the values. They are taken to be spread evenly within a bucket; those
 * above the last bound, up to twice that bound. */
static double variance_of(const struct kvw_samples_times *times)
{
	double low = 0, before = 0, sum = 0, squares = 0;

	for (size_t i = 0; i < times->buckets; i++) {
		double high = isinf(times->bounds[i]) ? 2 * low : times->bounds[i];
		double count = times->counts[i] - before;

		sum += count * (low + high) / 2;
		squares += count * (low * low + low * high + high * high) / 3;
		before = times->counts[i];
		low = high;
	}
	if (before <= 0)
		return 0;
	sum /= before;
	return squares / before > sum * sum ? squares / before - sum * sum : 0;
}

struct kvw_estimate kvw_estimate_mean(const struct kvw_samples_times *times, double independent)
{
	struct kvw_estimate estimate = {.samples = times->count};
	double half;

	if (times->count <= 0 || independent <= 0)
		return estimate;
	if (independent > times->count)
		independent = times->count;
	half = Z * sqrt(variance_of(times) / independent);
	estimate.known = true;
	estimate.samples = independent;
	estimate.value = times->sum / times->count;
	estimate.low = estimate.value > half ? estimate.value - half : 0;
	estimate.high = estimate.value + half;
	return estimate;
}

struct kvw_estimate kvw_estimate_share(double some, double all)
{
	struct kvw_estimate estimate = {.samples = all};
	double share = all > 0 ? some / all : 0, z2 = Z * Z;
	double middle, half;

	if (all <= 0)
		return estimate;
	middle = (share + z2 / (2 * all)) / (1 + z2 / all);
	half = Z * sqrt(share * (1 - share) / all + z2 / (4 * all * all)) / (1 + z2 / all);
	estimate.known = true;
	estimate.value = share;
	estimate.low = middle > half ? middle - half : 0;
	estimate.high = middle + half < 1 ? middle + half : 1;
	return estimate;
}

/* Uses Newcombe's method with the two intervals, which is valid for shares near 0 as well as for
 * means. */
enum kvw_beyond kvw_estimates_differ(const struct kvw_estimate *a, const struct kvw_estimate *b)
{
	const struct kvw_estimate *more = a->value >= b->value ? a : b, *less = more == a ? b : a;
	double down = more->value - more->low, up = less->high - less->value;

	if (!a->known || !b->known || a->low == a->high || b->low == b->high ||
		a->samples < LEAST || b->samples < LEAST)
		return KVW_BEYOND_UNKNOWN;
	return more->value - less->value > sqrt(down * down + up * up) ? KVW_BEYOND_YES
								       : KVW_BEYOND_NO;
}

/* --- rows --- */

enum row {
	ROW_REQUESTS,
	ROW_ERRORS,
	ROW_REFUSED,
	ROW_FIRST,
	ROW_PER_TOKEN,
	ROW_GAP,
	ROW_KEPT,
	ROW_CACHED,
	ROW_TOKENS,
	ROW_DRAFTS,
	ROW_COUNT
};

static const struct {
	const char *name, *key, *unit;
	double factor;
} rows[ROW_COUNT] = {
	[ROW_REQUESTS] = {"requests", "requests", "", 1},
	[ROW_ERRORS] = {"errors", "error_share", "%", 100},
	[ROW_REFUSED] = {"refused (4xx)", "refused_share", "%", 100},
	[ROW_FIRST] = {"time to first token", "first_token_seconds", "ms", 1000},
	[ROW_PER_TOKEN] = {"per further token", "output_token_seconds", "ms", 1000},
	[ROW_GAP] = {"between reads", "inter_token_seconds", "ms", 1000},
	[ROW_KEPT] = {"promises kept", "promise_kept_share", "%", 100},
	[ROW_CACHED] = {"of prompts cached", "cached_share", "%", 100},
	[ROW_TOKENS] = {"tokens per answer", "completion_tokens_per_answer", "", 1},
	[ROW_DRAFTS] = {"draft tokens accepted", "draft_acceptance", "%", 100},
};

static struct kvw_estimate plain(double value, bool known)
{
	return (struct kvw_estimate){.known = known, .value = value, .low = value, .high = value};
}

static struct kvw_estimate estimate(const struct kvw_group_samples *g, enum row row)
{
	double ended = g->ok + g->error + g->refused;

	switch (row) {
	case ROW_REQUESTS:
		return plain(ended + g->left, true);
	case ROW_ERRORS:
		return kvw_estimate_share(g->error, ended);
	case ROW_REFUSED:
		return kvw_estimate_share(g->refused, ended);
	case ROW_FIRST:
		return kvw_estimate_mean(&g->first_token, g->first_token.count);
	case ROW_PER_TOKEN:
		return kvw_estimate_mean(&g->per_token, g->per_token.count);
	case ROW_GAP:
		return kvw_estimate_mean(&g->gap, g->first_token.count);
	case ROW_KEPT:
		return kvw_estimate_share(g->kept, g->kept + g->broken);
	case ROW_CACHED:
		return plain(g->prompt > 0 ? g->cached / g->prompt : 0, g->prompt > 0);
	case ROW_DRAFTS:
		return plain(g->drafted > 0 ? g->accepted / g->drafted : 0, g->drafted > 0);
	default:
		return plain(g->ok > 0 ? g->completion / g->ok : 0, g->ok > 0 && g->completion > 0);
	}
}

/* --- table --- */

static void put_estimate(FILE *out, const struct kvw_estimate *e, double factor)
{
	char text[64];
	int digits = factor > 1 ? 2 : e->value < 100 && e->value != floor(e->value) ? 1 : 0;

	if (!e->known)
		(void)snprintf(text, sizeof(text), "-");
	else if (e->low == e->high)
		(void)snprintf(text, sizeof(text), "%.*f", digits, factor * e->value);
	else
		(void)snprintf(text, sizeof(text), "%.2f (%.2f to %.2f)", factor * e->value,
			factor * e->low, factor * e->high);
	fprintf(out, "  %28s", text);
}

static const char *verdict(enum kvw_beyond beyond)
{
	return beyond == KVW_BEYOND_YES ? "yes" : beyond == KVW_BEYOND_NO ? "no" : "";
}

/* --- fidelity --- */

static double compared(const struct kvw_fidelity_samples *f)
{
	return f->equal + f->different;
}

static struct kvw_estimate difference_of(const struct kvw_fidelity_samples *f)
{
	return kvw_estimate_mean(&f->difference, f->difference.count);
}

static void print_fidelity(const struct kvw_comparison *c, FILE *out)
{
	const struct kvw_fidelity_samples *f = &c->fidelity;
	struct kvw_estimate equal = kvw_estimate_share(f->equal, compared(f)),
			    difference = difference_of(f);

	if (compared(f) + f->unfinished + f->unread == 0)
		return;
	fprintf(out,
		"\nFidelity, of requests of temperature 0 that both answered (shadow):\n\n%-26s  "
		"%28.0f\n%-26s",
		"answers compared", compared(f), "equal answers, %");
	put_estimate(out, &equal, 100);
	fprintf(out, "\n%-26s", "first difference after");
	put_estimate(out, &difference, 1);
	fputs(difference.known ? "  characters\n" : "\n", out);
	if (compared(f) > 0)
		fprintf(out, "%-26s  %28.1f  %28.1f\n", "characters per answer",
			f->characters[0] / compared(f), f->characters[1] / compared(f));
	if (f->unfinished + f->unread > 0)
		fprintf(out, "%-26s  %28.0f  unfinished %.0f, unread %.0f\n", "not compared",
			f->unfinished + f->unread, f->unfinished, f->unread);
}

void kvw_comparison_print(const struct kvw_comparison *c, FILE *out)
{
	kvw_printf(out, "Model %s", c->model);
	if (c->seconds > 0)
		fprintf(out, ", requests that ended within %.0f s:\n\n", c->seconds);
	else
		fputs(", since the router was started:\n\n", out);
	fprintf(out, "%-26s  %28s  %28s  beyond noise\n", "", c->names[0], c->names[1]);
	for (size_t i = 0; i < ROW_COUNT; i++) {
		struct kvw_estimate a = estimate(&c->groups[0], (enum row)i),
				    b = estimate(&c->groups[1], (enum row)i);
		char name[64];

		(void)snprintf(name, sizeof(name), "%s%s%s", rows[i].name,
			rows[i].unit[0] != '\0' ? ", " : "", rows[i].unit);
		fprintf(out, "%-26s", name);
		put_estimate(out, &a, rows[i].factor);
		put_estimate(out, &b, rows[i].factor);
		fprintf(out, "  %s\n", verdict(kvw_estimates_differ(&a, &b)));
	}
	print_fidelity(c, out);
	fputs("\nIn parentheses: 95 % intervals. No verdict: fewer than 30 samples in a group, or "
	      "none is computed.\n",
		out);
}

/* --- JSON --- */

static json_t *estimate_json(const struct kvw_estimate *e)
{
	if (!e->known)
		return json_null();
	if (e->low == e->high)
		return json_pack("{s:f}", "value", e->value);
	return json_pack("{s:f, s:f, s:f, s:f}", "value", e->value, "low", e->low, "high", e->high,
		"samples", e->samples);
}

static json_t *fidelity_json(const struct kvw_fidelity_samples *f)
{
	struct kvw_estimate equal = kvw_estimate_share(f->equal, compared(f)),
			    difference = difference_of(f);
	double all = compared(f) > 0 ? compared(f) : 1;

	if (compared(f) + f->unfinished + f->unread == 0)
		return json_null();
	return json_pack("{s:f, s:f, s:f, s:o, s:o, s:[f,f]}", "compared", compared(f),
		"unfinished", f->unfinished, "unread", f->unread, "equal_share",
		estimate_json(&equal), "first_difference_characters", estimate_json(&difference),
		"characters_per_answer", f->characters[0] / all, f->characters[1] / all);
}

enum kvw_err kvw_comparison_json(const struct kvw_comparison *c, FILE *out)
{
	json_t *root =
		json_pack("{s:s, s:[s,s]}", "model", c->model, "groups", c->names[0], c->names[1]);
	json_t *rows_json = json_object();
	enum kvw_err err = KVW_ENOMEM;

	for (size_t i = 0; i < ROW_COUNT; i++) {
		struct kvw_estimate a = estimate(&c->groups[0], (enum row)i),
				    b = estimate(&c->groups[1], (enum row)i);
		enum kvw_beyond beyond = kvw_estimates_differ(&a, &b);
		json_t *row = json_pack("{s:[o,o], s:o}", "values", estimate_json(&a),
			estimate_json(&b), "beyond_noise",
			beyond == KVW_BEYOND_UNKNOWN ? json_null()
						     : json_boolean(beyond == KVW_BEYOND_YES));

		json_object_set_new(rows_json, rows[i].key, row);
	}
	json_object_set_new(root, "seconds", c->seconds > 0 ? json_real(c->seconds) : json_null());
	json_object_set_new(root, "rows", rows_json);
	json_object_set_new(root, "fidelity", fidelity_json(&c->fidelity));
	if (root != NULL && json_dumpf(root, out, JSON_INDENT(1)) == 0) {
		fputc('\n', out);
		err = KVW_OK;
	}
	json_decref(root);
	return err;
}
