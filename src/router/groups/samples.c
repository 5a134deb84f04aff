/*
 * samples.c - reads numbers from `/metrics`: of one group, its requests, promises, tokens and
 * times; of two groups, whether copies of one group's requests got the same answers from the other.
 */
#include "groups/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "kvway_group_"

/* A line of the text. */
struct sample {
	char name[64]; /* name after PREFIX */
	char model[KVW_SAMPLES_NAME], group[KVW_SAMPLES_NAME], of[KVW_SAMPLES_NAME];
	char third[64]; /* value of the label that is neither model nor group */
	double value;
};

/* Copies a label's value, unescaped. Returns the position after its closing quotation mark; NULL:
 * there is no room, or the value has no end. */
static const char *take_value(const char *at, char *out, size_t room)
{
	size_t len = 0;

	for (; *at != '"'; at++) {
		char c = *at;

		if (c == '\\' && at[1] != '\0')
			c = *++at == 'n' ? '\n' : *at;
		if (c == '\0' || c == '\n' || len + 1 == room)
			return NULL;
		out[len++] = c;
	}
	out[len] = '\0';
	return at + 1;
}

/* Reads labels, from the opening brace on. Returns the position after the closing one; NULL: they
 * are malformed. */
static const char *take_labels(const char *at, struct sample *sample)
{
	while (*at == '{' || *at == ',') {
		size_t len = strcspn(++at, "=\n");
		char *names = len == 5 && memcmp(at, "model", 5) == 0   ? sample->model
			      : len == 5 && memcmp(at, "group", 5) == 0 ? sample->group
			      : len == 2 && memcmp(at, "of", 2) == 0    ? sample->of
									: NULL;

		if (at[len] != '=' || at[len + 1] != '"')
			return NULL;
		at = take_value(at + len + 2, names != NULL ? names : sample->third,
			names != NULL ? KVW_SAMPLES_NAME : sizeof(sample->third));
		if (at == NULL)
			return NULL;
	}
	return *at == '}' ? at + 1 : NULL;
}

/* Reads the line at `at` in a text that ends with a NUL. Returns false if it is not a sample of a
 * group. */
static bool read_line(const char *at, struct sample *sample)
{
	size_t len;
	char *end;

	*sample = (struct sample){.value = 0};
	if (strncmp(at, PREFIX, strlen(PREFIX)) != 0)
		return false;
	at += strlen(PREFIX);
	len = strcspn(at, "{ \n");
	if (len >= sizeof(sample->name) || at[len] != '{')
		return false;
	memcpy(sample->name, at, len);
	at = take_labels(at + len, sample);
	if (at == NULL || *at != ' ')
		return false;
	sample->value = strtod(at, &end);
	return end != at && sample->value >= 0;
}

static void take_time(
	const struct sample *sample, const char *part, struct kvw_samples_times *times)
{
	if (strcmp(part, "_sum") == 0) {
		times->sum = sample->value;
	} else if (strcmp(part, "_count") == 0) {
		times->count = sample->value;
	} else if (strcmp(part, "_bucket") == 0 && times->buckets < KVW_SAMPLES_BUCKETS) {
		times->bounds[times->buckets] =
			strcmp(sample->third, "+Inf") == 0 ? INFINITY : strtod(sample->third, NULL);
		times->counts[times->buckets++] = sample->value;
	}
}

static bool text_begins(const char *text, const char *with, const char **rest)
{
	size_t len = strlen(with);

	*rest = text + len;
	return strncmp(text, with, len) == 0;
}

/* Returns the member for this sample; NULL: there is none. */
static double *counter_of(const struct sample *s, struct kvw_group_samples *out)
{
	const struct {
		const char *name, *third;
		double *to;
	} counters[] = {
		{"requests_total", "ok", &out->ok},
		{"requests_total", "error", &out->error},
		{"requests_total", "refused", &out->refused},
		{"requests_total", "left", &out->left},
		{"service_level_total", "kept", &out->kept},
		{"service_level_total", "late", &out->broken},
		{"service_level_total", "slow", &out->broken},
		{"service_level_total", "failed", &out->broken},
		{"service_level_total", "refused", &out->broken},
		{"tokens_total", "prompt", &out->prompt},
		{"tokens_total", "cached", &out->cached},
		{"tokens_total", "completion", &out->completion},
		{"draft_tokens_total", "drafted", &out->drafted},
		{"draft_tokens_total", "accepted", &out->accepted},
	};

	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		if (strcmp(s->name, counters[i].name) == 0 &&
			strcmp(s->third, counters[i].third) == 0)
			return counters[i].to;
	return NULL;
}

static void take_sample(const struct sample *sample, struct kvw_group_samples *out)
{
	double *counter = counter_of(sample, out);
	const char *part;

	out->found = true;
	if (counter != NULL)
		*counter += sample->value;
	else if (text_begins(sample->name, "time_to_first_token_seconds", &part))
		take_time(sample, part, &out->first_token);
	else if (text_begins(sample->name, "time_per_output_token_seconds", &part))
		take_time(sample, part, &out->per_token);
	else if (text_begins(sample->name, "inter_token_seconds", &part))
		take_time(sample, part, &out->gap);
}

static const char *next_line(const char *at)
{
	const char *end = strchr(at, '\n');

	return end == NULL ? at + strlen(at) : end + 1;
}

void kvw_samples_read(
	struct kvw_slice text, const char *model, const char *group, struct kvw_group_samples *out)
{
	struct sample sample;

	*out = (struct kvw_group_samples){.found = false};
	for (const char *at = text.data; at < text.data + text.len && *at != '\0';
		at = next_line(at))
		if (read_line(at, &sample) && strcmp(sample.model, model) == 0 &&
			strcmp(sample.group, group) == 0)
			take_sample(&sample, out);
}

/* --- two groups --- */

static void take_fidelity(const struct sample *s, size_t copy, struct kvw_fidelity_samples *out)
{
	const char *part;

	if (strcmp(s->name, "fidelity_total") == 0) {
		double *to = strcmp(s->third, "equal") == 0	   ? &out->equal
			     : strcmp(s->third, "different") == 0  ? &out->different
			     : strcmp(s->third, "unfinished") == 0 ? &out->unfinished
								   : &out->unread;

		*to += s->value;
	} else if (strcmp(s->name, "fidelity_characters_total") == 0) {
		out->characters[strcmp(s->third, "copy") == 0 ? copy : 1 - copy] += s->value;
	} else if (text_begins(s->name, "fidelity_first_difference_characters", &part)) {
		take_time(s, part, &out->difference);
	}
}

static void add_times(struct kvw_samples_times *sum, const struct kvw_samples_times *more)
{
	if (sum->buckets == 0)
		*sum = *more;
	else if (more->buckets == sum->buckets) {
		for (size_t i = 0; i < sum->buckets; i++)
			sum->counts[i] += more->counts[i];
		sum->sum += more->sum;
		sum->count += more->count;
	}
}

void kvw_samples_fidelity(struct kvw_slice text, const char *model, const char *const groups[2],
	struct kvw_fidelity_samples *out)
{
	struct kvw_samples_times other;
	struct sample sample;

	*out = (struct kvw_fidelity_samples){0};
	for (size_t copy = 0; copy < 2; copy++) {
		other = out->difference;
		out->difference = (struct kvw_samples_times){0};
		for (const char *at = text.data; at < text.data + text.len && *at != '\0';
			at = next_line(at))
			if (read_line(at, &sample) && strcmp(sample.model, model) == 0 &&
				strcmp(sample.group, groups[copy]) == 0 &&
				strcmp(sample.of, groups[1 - copy]) == 0)
				take_fidelity(&sample, copy, out);
		add_times(&out->difference, &other);
	}
}

/* --- differences --- */

static bool subtract(double *later, double earlier)
{
	*later -= earlier;
	return *later >= 0;
}

/* A histogram that had no samples is missing in the earlier text, so it counts as 0. */
static bool subtract_times(struct kvw_samples_times *later, const struct kvw_samples_times *earlier)
{
	bool good = subtract(&later->count, earlier->count) && later->sum >= earlier->sum;

	later->sum -= earlier->sum;
	if (earlier->buckets == 0)
		return good;
	if (earlier->buckets != later->buckets)
		return false;
	for (size_t i = 0; i < later->buckets; i++)
		good = good && subtract(&later->counts[i], earlier->counts[i]);
	return good;
}

bool kvw_samples_subtract(struct kvw_group_samples *later, const struct kvw_group_samples *earlier)
{
	bool good = subtract_times(&later->first_token, &earlier->first_token) &&
		    subtract_times(&later->gap, &earlier->gap) &&
		    subtract_times(&later->per_token, &earlier->per_token);

	if (!subtract(&later->drafted, earlier->drafted) ||
		!subtract(&later->accepted, earlier->accepted))
		later->drafted = later->accepted = 0; /* a worker left */
	good = subtract(&later->ok, earlier->ok) && good;
	good = subtract(&later->error, earlier->error) && good;
	good = subtract(&later->refused, earlier->refused) && good;
	good = subtract(&later->left, earlier->left) && good;
	good = subtract(&later->kept, earlier->kept) && good;
	good = subtract(&later->broken, earlier->broken) && good;
	good = subtract(&later->prompt, earlier->prompt) && good;
	good = subtract(&later->cached, earlier->cached) && good;
	return subtract(&later->completion, earlier->completion) && good;
}

bool kvw_samples_subtract_fidelity(
	struct kvw_fidelity_samples *later, const struct kvw_fidelity_samples *earlier)
{
	bool good = subtract_times(&later->difference, &earlier->difference);

	good = subtract(&later->equal, earlier->equal) && good;
	good = subtract(&later->different, earlier->different) && good;
	good = subtract(&later->unfinished, earlier->unfinished) && good;
	good = subtract(&later->unread, earlier->unread) && good;
	good = subtract(&later->characters[0], earlier->characters[0]) && good;
	return subtract(&later->characters[1], earlier->characters[1]) && good;
}

/* --- models --- */

bool kvw_samples_model(struct kvw_slice text, const char *one, const char *other,
	char model[KVW_SAMPLES_NAME], size_t *count)
{
	struct sample sample;
	struct kvw_group_samples seen;

	*count = 0;
	for (const char *at = text.data; at < text.data + text.len && *at != '\0';
		at = next_line(at)) {
		if (!read_line(at, &sample) || strcmp(sample.name, "weight") != 0 ||
			strcmp(sample.group, one) != 0)
			continue;
		kvw_samples_read(text, sample.model, other, &seen);
		if (!seen.found)
			continue;
		strcpy(model, sample.model);
		(*count)++;
	}
	return *count > 0;
}
