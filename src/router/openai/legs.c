/*
 * legs.c - plans the two bodies of a request that one worker prefills and another decodes, and
 * reads the parameters that the prefiller's answer has for the decoder.
 */
#include "openai/legs.h"

#include <stdlib.h>
#include <string.h>

#include "openai/members.h"

#define TRANSFER "kv_transfer_params"

/* Values that the prefiller gets in place of the client's. */
static const struct {
	const char *name, *instead;
} changes[] = {
	{"max_tokens", "1"},
	{"max_completion_tokens", "1"},
	{"max_output_tokens", "1"},
	{"min_tokens", "0"},
	{"min_completion_tokens", "0"},
	{"stream", "false"},
	{"stream_options", "null"},
	{"n", "1"},
	{"best_of", "1"},
	{"store", "false"},
};

/* Members which keep the request whole if they have another value than this neutral one. */
static const struct {
	const char *name, *neutral;
} whole[] = {
	{TRANSFER, "{}"},
	{"n", "1"},
	{"best_of", "1"},
	{"echo", "false"},
	{"prompt_logprobs", "null"},
	{"use_beam_search", "false"},
	{"background", "false"},
};

struct plan {
	struct kvw_slice body;
	struct kvw_slice params; /* the new TRANSFER; len 0: none */
	struct kvw_splice *out;
	bool refused;
	bool limited;     /* the member that limits the API's answer was found */
	bool transferred; /* TRANSFER was met */
	const char *limit;
};

static bool is_named(const struct kvw_member *member, const char *name)
{
	return kvw_slice_equal(member->name, kvw_slice_of(name));
}

static void add_edit(struct plan *p, size_t at, size_t removed, struct kvw_slice text)
{
	struct kvw_splice *out = p->out;

	if (out->count == sizeof(out->edits) / sizeof(out->edits[0])) {
		p->refused = true;
		return;
	}
	out->edits[out->count++] = (struct kvw_splice_edit){at, removed, text};
	out->growth += (int64_t)text.len - (int64_t)removed;
}

static void replace(struct plan *p, const struct kvw_member *member, struct kvw_slice text)
{
	add_edit(p, (size_t)(member->value.data - p->body.data), member->value.len, text);
}

static bool stays_whole(const struct kvw_member *member)
{
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		if (is_named(member, whole[i].name))
			return !kvw_slice_equal(member->value, kvw_slice_of(whole[i].neutral)) &&
			       !kvw_slice_equal(member->value, KVW_SLICE("null"));
	return false;
}

static bool plan_prefill(void *arg, const struct kvw_member *member)
{
	struct plan *p = arg;

	p->refused = p->refused || member->escaped || stays_whole(member);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]) && !p->refused; i++)
		if (is_named(member, changes[i].name))
			replace(p, member, kvw_slice_of(changes[i].instead));
	if (is_named(member, TRANSFER) && p->params.len > 0 && !p->refused)
		replace(p, member, p->params);
	p->limited = p->limited || is_named(member, p->limit);
	p->transferred = p->transferred || is_named(member, TRANSFER);
	return !p->refused;
}

static bool plan_decode(void *arg, const struct kvw_member *member)
{
	struct plan *p = arg;

	p->refused = p->refused || member->escaped;
	if (is_named(member, TRANSFER)) {
		replace(p, member, p->params);
		p->transferred = true;
	}
	return !p->refused;
}

/* Inserts members before the first one. They are planned last, but their edits come first in the
 * body. */
static void insert_members(struct plan *p, size_t open, const struct kvw_slice *texts, size_t count)
{
	struct kvw_splice *out = p->out;
	uint32_t kept = out->count;

	for (size_t i = 0; i < count; i++)
		add_edit(p, open, 0, texts[i]);
	if (p->refused)
		return;
	memmove(out->edits + count, out->edits, kept * sizeof(out->edits[0]));
	for (size_t i = 0; i < count; i++)
		out->edits[i] = (struct kvw_splice_edit){open, 0, texts[i]};
}

enum kvw_err kvw_leg_prefill(struct kvw_slice body, enum kvw_api api, struct kvw_slice params,
	struct kvw_splice *out)
{
	struct plan p = {.body = body, .params = params, .out = out};
	struct kvw_slice texts[4];
	size_t open, count, missing = 0;
	enum kvw_err err;

	p.limit = api == KVW_API_RESPONSES ? "max_output_tokens" : "max_tokens";
	out->count = 0;
	out->growth = 0;
	err = kvw_members_walk(body, plan_prefill, &p, &open, &count);
	if (p.refused || (err == KVW_OK && count == 0))
		return KVW_EINVAL;
	if (err != KVW_OK)
		return err;
	if (!p.transferred && params.len > 0) {
		texts[missing++] = KVW_SLICE("\"" TRANSFER "\":");
		texts[missing++] = params;
		texts[missing++] = KVW_SLICE(",");
	}
	if (!p.limited)
		texts[missing++] = api == KVW_API_RESPONSES ? KVW_SLICE("\"max_output_tokens\":1,")
							    : KVW_SLICE("\"max_tokens\":1,");
	insert_members(&p, open, texts, missing);
	return p.refused ? KVW_EINVAL : KVW_OK;
}

enum kvw_err kvw_leg_decode(
	struct kvw_slice body, struct kvw_slice params, struct kvw_splice *out)
{
	struct plan p = {.body = body, .params = params, .out = out};
	const struct kvw_slice texts[] = {
		KVW_SLICE("\"" TRANSFER "\":"), params, KVW_SLICE(",")};
	size_t open, count;
	enum kvw_err err;

	out->count = 0;
	out->growth = 0;
	err = kvw_members_walk(body, plan_decode, &p, &open, &count);
	if (p.refused || (err == KVW_OK && count == 0))
		return KVW_EINVAL;
	if (err != KVW_OK)
		return err;
	if (!p.transferred)
		insert_members(&p, open, texts, sizeof(texts) / sizeof(texts[0]));
	return p.refused ? KVW_EINVAL : KVW_OK;
}

/* --- the prefiller's answer --- */

struct found {
	struct kvw_leg_params *out;
	bool prefilled, request;
};

static bool is_said(const struct kvw_member *member)
{
	return !kvw_slice_equal(member->value, KVW_SLICE("null")) &&
	       !kvw_slice_equal(member->value, KVW_SLICE("\"\""));
}

/* 0: no such number. */
static double number_of(const struct kvw_member *member)
{
	char digits[40], *end;
	double value;

	if (member->value.len >= sizeof(digits))
		return 0;
	memcpy(digits, member->value.data, member->value.len);
	digits[member->value.len] = '\0';
	value = strtod(digits, &end);
	return *end == '\0' && value > 0 && value < 1e15 ? value : 0;
}

static uint32_t count_of(const struct kvw_member *member)
{
	double value = number_of(member);

	return value < UINT32_MAX ? (uint32_t)value : 0;
}

/* Where that member is kept as it is spelled. NULL: it is not. */
static struct kvw_slice *place_of(struct kvw_leg_params *params, struct kvw_slice name)
{
	const struct {
		const char *name;
		struct kvw_slice *place;
	} kept[] = {
		{"remote_engine_id", &params->engine_id},
		{"remote_host", &params->host},
		{"remote_port", &params->port},
		{"tp_size", &params->tp_size},
		{"dcp_size", &params->dcp_size},
		{"pp_size", &params->pp_size},
	};

	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (kvw_slice_equal(name, kvw_slice_of(kept[i].name)))
			return kept[i].place;
	return NULL;
}

static bool read_param(void *arg, const struct kvw_member *member)
{
	struct found *f = arg;

	if (is_named(member, "do_remote_prefill"))
		f->prefilled = kvw_slice_equal(member->value, KVW_SLICE("true"));
	else if (is_named(member, "remote_request_id"))
		f->request = is_said(member);
	else if (place_of(f->out, member->name) != NULL)
		*place_of(f->out, member->name) =
			is_said(member) ? member->value : (struct kvw_slice){NULL, 0};
	else if (is_named(member, "remote_blocks_expiry_time"))
		f->out->expires_s = number_of(member);
	else if (is_named(member, "remote_num_tokens"))
		f->out->prompt_tokens = count_of(member);
	else if (is_named(member, "remote_prefill_cached_tokens"))
		f->out->cached_tokens = count_of(member);
	return true;
}

/* The last of several members with the same name counts, as with the engine's own parser. */
static bool find_params(void *arg, const struct kvw_member *member)
{
	struct kvw_slice *text = arg;

	if (is_named(member, TRANSFER))
		*text = member->value;
	return true;
}

enum kvw_err kvw_leg_params_read(struct kvw_slice answer, struct kvw_leg_params *out)
{
	struct kvw_leg_params params = {.text = {NULL, 0}};
	struct found found = {.out = &params};
	size_t open, count;

	if (kvw_members_walk(answer, find_params, &params.text, &open, &count) != KVW_OK)
		return KVW_EPROTO;
	if (params.text.len == 0 || params.text.data[0] != '{' ||
		kvw_members_walk(params.text, read_param, &found, &open, &count) != KVW_OK ||
		!found.prefilled || !found.request || params.host.len == 0 ||
		params.port.len == 0 || params.engine_id.len == 0)
		return KVW_EINVAL;
	*out = params;
	return KVW_OK;
}
