/*
 * understand.c - finds out what a whole request asks for: scans its body, and uses the result.
 *
 * A scan's arrays are as large as a sixteenth of the prompt. The request needs them until a worker
 * is picked, and then waits for seconds. So the scan goes back to the loop at once, where the next
 * request finds its memory still in the processor's cache; a request that has to be routed again,
 * which is rare, is scanned again from its kept body.
 */
#include "proxy/understand.h"

#include <stdlib.h>
#include <string.h>

#include "proxy/groups.h"
#include "proxy/pd.h"
#include "proxy/rank.h"
#include "proxy/rewrite.h"

/* A scan that needed more than this for a huge prompt is freed. */
#define SCAN_KEPT_BYTES ((size_t)256 << 10)

/* Returns whether these settings are in force now. Scans borrow names of the configuration, so that
 * the loop keeps only scans of the one in force. */
static bool in_force(const struct kvw_exchange *x)
{
	return x->in_force == x->loop->in_force;
}

/* Takes a scan from the loop's idle ones, or makes one. NULL: out of memory. */
static struct kvw_scan *take_scan(const struct kvw_exchange *x)
{
	const struct kvw_strings *fields = &x->config->session_body_fields;
	const struct kvw_scan_options options = {
		.session_fields = (const char *const *)fields->items,
		.session_field_count = fields->count,
	};
	struct kvw_loop *loop = x->loop;
	struct kvw_scan *scan;

	if (loop->scan_count > 0 && in_force(x)) {
		scan = loop->scans[--loop->scan_count];
		loop->scan_bytes -= kvw_scan_memory(scan);
		return scan;
	}
	return kvw_scan_create(&options, &scan) == KVW_OK ? scan : NULL;
}

static void give_back(const struct kvw_exchange *x, struct kvw_scan *scan)
{
	struct kvw_loop *loop = x->loop;
	size_t bytes = kvw_scan_memory(scan);

	if (loop->scan_count == KVW_LOOP_SCANS || !in_force(x) || bytes > SCAN_KEPT_BYTES ||
		loop->scan_bytes + bytes > KVW_LOOP_SCANS_BYTES) {
		kvw_scan_destroy(scan);
		return;
	}
	loop->scans[loop->scan_count++] = scan;
	loop->scan_bytes += bytes;
}

bool kvw_request_scan_charge(struct kvw_exchange *x)
{
	uint64_t now = x->scan == NULL ? 0 : kvw_scan_memory(x->scan), before = x->scan_memory;

	kvw_account_update(x->loop->shared->memory, &x->scan_memory, now);
	return now > before;
}

void kvw_request_scan_begin(struct kvw_exchange *x)
{
	x->scan = take_scan(x);
	if (x->scan == NULL)
		return;
	/* For an unknown path: JSON or a form, in which the scan looks for the model. */
	kvw_scan_reset(x->scan, x->path.api == KVW_API_OTHER ? KVW_API_AUDIO : x->path.api);
	if ((x->strategy->ops->prepare < KVW_PREPARE_CONTENT &&
		    x->config->model_group_count == 0 && !kvw_pd_reads(x)) ||
		!x->whole)
		kvw_scan_fields_only(x->scan);
	kvw_scan_watch_fields(x->scan, kvw_rewrite_fields(x));
	if (x->in_force->cuts && x->whole)
		kvw_scan_cut(x->scan, &x->in_force->separator);
	if (x->loop->sources != NULL && x->whole)
		kvw_scan_keep_ids(x->scan);
}

void kvw_request_read_query(struct kvw_exchange *x)
{
	x->named.text = kvw_target_parameter(x->target, "model");
	x->route.model = x->named.text;
}

/* Returns the model that the head names, or else the body. */
static struct kvw_slice named_model(const struct kvw_exchange *x)
{
	if (x->sagemaker.adapter.len > 0)
		return x->sagemaker.adapter;
	return x->scan == NULL ? (struct kvw_slice){NULL, 0} : kvw_scan_model(x->scan);
}

/* Notes the model that is meant by a body that names none, which is the only model of its engine:
 * leaving the name out must not change which limits and keys count. */
static void note_meant(struct kvw_exchange *x)
{
	if (x->scan == NULL || !x->path.prompt)
		return;
	x->named.absent = named_model(x).len == 0;
	if (x->named.absent && x->named.meant == NULL) {
		x->named.meant = kvw_fleet_meant_model(x->loop->fleet);
		kvw_model_hold(x->named.meant);
	}
}

/* Returns the model's name: the query's, or else that of the model meant by a body without a
 * name. */
static struct kvw_slice asked_model(const struct kvw_named *named)
{
	if (named->text.len == 0 && named->meant != NULL)
		return kvw_slice_of(named->meant->name);
	return named->text;
}

static void keep_model(struct kvw_exchange *x)
{
	struct kvw_slice found = named_model(x);
	char *copy = found.len == 0 ? NULL : malloc(found.len);

	if (copy == NULL)
		return;
	memcpy(copy, found.data, found.len);
	free((char *)x->named.text.data);
	x->named.text = (struct kvw_slice){copy, found.len};
}

void kvw_request_keep_model(struct kvw_exchange *x)
{
	keep_model(x);
	note_meant(x);
}

void kvw_request_keep_known_model(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_slice found =
		x->scan == NULL ? (struct kvw_slice){NULL, 0} : kvw_scan_model(x->scan);
	struct kvw_model *model;
	bool known = false;

	if (found.len > 0)
		kvw_fleet_read(loop->fleet, found, &loop->candidates, &known, &model);
	if (known || kvw_config_alias(x->config, found) != NULL ||
		kvw_config_groups(x->config, found).count > 0)
		keep_model(x);
}

/* Returns the units of all chains together, to learn bytes per token; 0: nothing can be learned. */
static uint64_t units_of_chains(const struct kvw_route_request *route)
{
	uint64_t units = 0;

	for (uint32_t c = 0, begin = 0; c < route->chain_count && !route->token_ids; c++) {
		uint32_t end = route->chain_ends[c];

		if (end > begin)
			units += route->chunks[end - 1].end;
		begin = end;
	}
	return units;
}

void kvw_request_scan_finish(struct kvw_exchange *x)
{
	uint64_t tenant = x->route.tenant;

	if (x->scan == NULL)
		return;
	kvw_rewrite_scan(x);
	x->scanned = kvw_scan_finish(x->scan, &x->route) == KVW_OK;
	x->streams = x->scanned && x->route.stream;
	x->path.api = x->route.api; /* the body has shown the path for which /invocations stands */
	x->greedy = x->scanned && kvw_scan_greedy(x->scan);
	x->rank_at = kvw_rank_place(x);
	if (!x->scanned)
		keep_model(x);
	note_meant(x);
	if (x->route.model.len == 0)
		x->route.model = asked_model(&x->named);
	if (x->head_session.len > 0)
		x->route.session = x->head_session;
	x->route.tenant = tenant;
	if (x->scanned && x->config->model_group_count > 0)
		kvw_groups_divide(x);
	x->measure.units = units_of_chains(&x->route);
}

struct kvw_slice kvw_request_body_model(const struct kvw_exchange *x)
{
	/* How a form is read depends on its header, which the scan does not check. */
	if (x->scan == NULL || !x->scanned || x->path.api == KVW_API_AUDIO)
		return (struct kvw_slice){NULL, 0};
	if (x->rewrite.alias != NULL)
		return kvw_slice_of(x->rewrite.alias->name);
	if (x->named.meant != NULL)
		return kvw_slice_of(x->named.meant->name);
	/* A query chooses a group, but workers do not read the query: a body without a name is not
	 * for the group's model. */
	return x->division.group != NULL && !x->named.absent
		       ? kvw_slice_of(x->division.group->model)
		       : kvw_scan_model(x->scan);
}

void kvw_request_scan_release(struct kvw_exchange *x)
{
	if (x->scan == NULL)
		return;
	give_back(x, x->scan);
	x->scan = NULL;
	(void)kvw_request_scan_charge(x);
	/* drops the members that are borrowed from the scan */
	x->route = (struct kvw_route_request){.api = x->path.api,
		.session = x->head_session,
		.model = asked_model(&x->named),
		.tenant = x->route.tenant};
}

static void feed_again(void *arg, const char *data, size_t len)
{
	kvw_scan_feed(arg, data, len);
}

void kvw_request_scan_again(struct kvw_exchange *x)
{
	if (x->scan != NULL || !x->scanned || !x->whole)
		return;
	kvw_request_scan_begin(x);
	if (x->scan == NULL)
		return;
	if (!kvw_upload_read_again(&x->upload, feed_again, x->scan))
		return; /* cannot happen: the body passed before */
	kvw_request_scan_finish(x);
	(void)kvw_request_scan_charge(x);
}

/* --- exact tokens, for a strategy that wants them --- */

/* Finds the prompt's token ids, if they are known. Borrowed from the scan or the list. */
static bool find_tokens(const struct kvw_exchange *x, struct kvw_kvprompt *prompt)
{
	struct kvw_scan_exact exact;

	if (!x->exact.seen || x->exact.inexact != KVW_INEXACT_NOT || x->scan == NULL)
		return false;
	kvw_scan_exact(x->scan, &exact);
	*prompt = (struct kvw_kvprompt){
		.tokens = x->exact.in_body ? exact.ids : x->exact.list->ids,
		.count = x->exact.in_body ? exact.id_count : x->exact.list->count,
		.cache_salt = exact.cache_salt,
	};
	if (x->model != NULL && atomic_load_explicit(&x->model->adapter, memory_order_relaxed))
		prompt->lora = kvw_slice_of(x->model->name);
	return true;
}

const struct kvw_route_request *kvw_request_read_again(struct kvw_exchange *x)
{
	kvw_request_scan_again(x);
	if (x->scan == NULL)
		return NULL;
	if (x->loop->sources != NULL)
		kvw_request_add_tokens(x);
	return &x->route;
}

void kvw_request_add_tokens(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_kvprompt prompt;

	x->route.inexact = x->exact.seen ? x->exact.inexact : KVW_INEXACT_NOT_WANTED;
	if (x->route.inexact != KVW_INEXACT_NOT)
		return;
	if (!find_tokens(x, &prompt) ||
		kvw_kvchains_fill(&loop->chains, loop->sources->spaces, &prompt) != KVW_OK) {
		x->route.inexact = KVW_INEXACT_FAILED; /* out of memory */
		return;
	}
	x->route.exact_tokens = (uint32_t)prompt.count;
	x->route.exact = loop->chains.chains;
	x->route.exact_count = loop->chains.count;
}

void kvw_request_report_pick(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_kvprompt prompt;
	bool known = find_tokens(x, &prompt);

	x->attempt.routed = kvw_sources_routed(loop->sources, &x->route, &x->attempt.decision,
		x->attempt.worker, known ? &prompt : NULL, loop->now_ns);
}
