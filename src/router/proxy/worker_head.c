/*
 * worker_head.c - see worker_head.h.
 */
#include "proxy/worker_head.h"

#include "auth/credential.h"
#include "fleet/pin.h"
#include "proxy/front.h"
#include "proxy/groups.h"
#include "proxy/guard.h"
#include "proxy/loop.h"
#include "proxy/pd.h"
#include "proxy/rank.h"
#include "proxy/request.h"
#include "proxy/sagemaker.h"
#include "proxy/transfer.h"
#include "proxy/unread.h"
#include "trace/trace.h"

/* Returns whether the answer shows the decision. Removes x-kvway-explain, by which a client asks
 * for that, from the head for the worker. */
static bool take_wish(const struct kvw_exchange *x, struct kvw_head *head)
{
	bool wished = false;

	for (size_t i = 0; i < head->field_count; i++) {
		struct kvw_field *field = &head->fields[i];

		if (!kvw_slice_equal_nocase(field->name, KVW_SLICE("x-kvway-explain")))
			continue;
		field->hop_by_hop = true;
		wished = wished || kvw_slice_equal(field->value, KVW_SLICE("1"));
	}
	return !x->page.preflight &&
	       ((wished && kvw_guard_trusts(x)) ||
		       x->loop->config->decision_headers == KVW_DECISION_HEADERS_ALWAYS);
}

static void hide(struct kvw_head *head, struct kvw_slice name)
{
	for (size_t i = 0; i < head->field_count; i++)
		if (kvw_slice_equal_nocase(head->fields[i].name, name))
			head->fields[i].hop_by_hop = true;
}

/* Hides the fields that name workers to llm-d's routing sidecar, of this or an earlier version: a
 * client could direct the sidecar to any address. */
static void hide_from_sidecar(struct kvw_head *head)
{
	hide(head, KVW_SLICE(KVW_PREFILLER_FIELD));
	hide(head, KVW_SLICE("x-prefiller-url"));
	hide(head, KVW_SLICE("x-encoder-hosts-ports"));
	hide(head, KVW_SLICE("x-data-parallel-host-port"));
}

static void hide_id(struct kvw_head *head)
{
	hide(head, KVW_SLICE("x-request-id"));
	head->first[KVW_FIELD_X_REQUEST_ID] = -1;
}

/* Writes the fields by which the two workers of a split request find each other. */
static void write_transfer(const struct kvw_exchange *x, struct kvw_head *head, bool prefills,
	struct kvw_writer *w)
{
	if (x->pd->kind->fields == NULL || (prefills && !x->pd->kind->renames))
		return;
	if (x->pd->kind->renames)
		hide_id(head);
	x->pd->kind->fields(x, prefills, w);
}

void kvw_worker_head_answered(const struct kvw_exchange *x, struct kvw_head *head)
{
	if (kvw_pd_hands(x) && x->pd->kind->renames)
		hide_id(head);
}

/* Names the span of this attempt or leg as the worker's parent. A tracestate without a valid
 * traceparent means nothing (W3C Trace Context section 4.3). */
static void write_trace(
	const struct kvw_exchange *x, bool leg, struct kvw_head *head, struct kvw_writer *w)
{
	char parent[KVW_TRACEPARENT_LEN];

	if (!kvw_trace_call(x->trace, leg, parent))
		return;
	if (kvw_head_find(head, KVW_SLICE("traceparent")) != NULL)
		hide(head, KVW_SLICE("traceparent"));
	if (kvw_trace_context(x->trace)->parent == 0 &&
		kvw_head_find(head, KVW_SLICE("tracestate")) != NULL)
		hide(head, KVW_SLICE("tracestate"));
	kvw_write_field(w, KVW_SLICE("traceparent"),
		(struct kvw_slice){parent, sizeof(parent)});
}

struct kvw_block *kvw_worker_head(struct kvw_exchange *x, struct kvw_worker *worker,
	const struct kvw_worker_body *body)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_request_head_options options = {
		.prefix = kvw_slice_of(worker->path_prefix),
		.authority = kvw_slice_of(worker->authority),
		.request_id = x->request_id,
		.client = kvw_slice_of(x->client->address),
		.https = x->client->https,
		.x_forwarded = x->config->forwarded == KVW_FORWARDED_BOTH ||
			       x->config->forwarded == KVW_FORWARDED_X,
		.forwarded = x->config->forwarded == KVW_FORWARDED_BOTH ||
			     x->config->forwarded == KVW_FORWARDED_STANDARD,
		.framing = body->framing,
		.content_length = body->content_length,
		.bearer = kvw_slice_of(loop->auth != NULL ? worker->api_key : NULL),
	};
	struct kvw_block *block;
	char extra[KVW_SAGEMAKER_ROOM + KVW_RANK_FIELD_ROOM +
		   KVW_TRANSFER_FIELD_ROOM + KVW_TRACEPARENT_LEN + 80];
	struct kvw_writer w = KVW_WRITER(extra, sizeof(extra));
	char begun[KVW_RANK_LEAD_ROOM];
	struct kvw_writer lead = KVW_WRITER(begun, sizeof(begun));

	if (!kvw_request_own_head(x))
		return NULL;
	hide(&loop->request_head, KVW_SLICE(KVW_PIN_FIELD)); /* also where it may not pin */
	kvw_groups_hide(x, &loop->request_head);
	if (x->config->decision_headers != KVW_DECISION_HEADERS_OFF)
		x->show_decision = take_wish(x, &loop->request_head);
	if (loop->shared->front.count > 0 && !x->client->trusted)
		kvw_front_hide(&loop->request_head);
	if (loop->auth != NULL)
		kvw_credential_hide(&loop->request_head);
	/* A gateway names itself, with the version it received (RFC 9110 section 7.6.3). */
	kvw_write(&w, x->client_minor == 0 ? KVW_SLICE("Via: 1.0 kvway\r\n")
					   : KVW_SLICE("Via: 1.1 kvway\r\n"));
	if (loop->joins)
		write_trace(x, body->prefills, &loop->request_head, &w);
	kvw_unread_ask_plain(x, &loop->request_head, &w);
	kvw_sagemaker_name_model(x, &loop->request_head, &w);
	if (body->prefills)
		x->pd->rank_number =
			worker->rank == KVW_RANK_NONE
				? KVW_RANK_NONE
				: kvw_rank_write(worker, &loop->request_head, false,
					  loop->now_ns, &w);
	else
		kvw_rank_write_field(x, &loop->request_head, &w);
	if (!body->prefills && kvw_rank_lead(x, &lead)) {
		options.framing = KVW_FRAME_LENGTH;
		options.content_length = x->upload.content_length - x->attempt.led + lead.len;
	}
	if (x->config->pd_transfer == KVW_PD_TRANSFER_SIDECAR)
		hide_from_sidecar(&loop->request_head);
	if (x->pd != NULL && (body->prefills || kvw_pd_hands(x)))
		write_transfer(x, &loop->request_head, body->prefills, &w);
	if (x->pd != NULL && (body->prefills || kvw_pd_hands(x)) && x->pd->kind->renames)
		options.request_id.len = 0;
	options.extra = (struct kvw_slice){w.data, w.len};
	block = kvw_block_get(&loop->blocks,
		kvw_head_request_bound(&loop->request_head, &options) + lead.len + sizeof(*block));
	if (block == NULL)
		return NULL;
	w = KVW_WRITER(block->data, block->size);
	block->end = (uint32_t)kvw_head_write_request(&w, &loop->request_head, &options);
	if (block->end > 0) {
		kvw_write(&w, (struct kvw_slice){lead.data, lead.len});
		block->end = (uint32_t)w.len;
		return block;
	}
	kvw_block_put(&loop->blocks, block);
	return NULL;
}
