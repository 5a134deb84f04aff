/*
 * unread.c - handles bodies that kvway cannot read.
 *
 * kvway cannot see the model of a compressed prompt, which would reach a worker of any model. vLLM
 * and SGLang read no compressed body either, so kvway asks the client for a plain one (RFC 9110
 * section 15.5.16). The same holds for a body that is no JSON, or has another media type: where all
 * workers serve one model the worker answers; where they serve several, the request would reach any
 * worker by chance, so kvway answers.
 *
 * kvway reads an answer to a prompt as it passes: for its usage, which limits charge, its errors
 * and ids. No engine compresses its answer, but a sidecar or an ingress before the engine may if
 * the client allows that. So kvway asks workers for plain answers, whatever the client would
 * accept.
 *
 * kvway counts each unreadable body, and logs one a minute.
 */
#include "proxy/unread.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"
#include "proxy/reply.h"

#define LOG_NS (60 * KVW_NS_PER_S)

void kvw_unread_note(const struct kvw_exchange *x, enum kvw_counter counter, const char *what)
{
	_Atomic int64_t *logged_ns = &x->loop->shared->unread_logged_ns;
	int64_t last = atomic_load_explicit(logged_ns, memory_order_relaxed),
		now_ns = x->loop->now_ns;
	size_t len = 0;

	kvw_metrics_add(x->loop->metrics, counter, 1);
	if (x->dry != NULL || now_ns - last < LOG_NS ||
		!atomic_compare_exchange_strong(logged_ns, &last, now_ns))
		return;
	while (len < x->target.len && x->target.data[len] != '?')
		len++;
	kvw_warn("proxy", "%s (counted each time, logged once a minute) path=%.*s client=%s", what,
		(int)(len < 128 ? len : 128), x->target.data, x->client->address);
}

/* The head's Content-Encoding. NULL: the body is plain. */
static const struct kvw_field *encoding(const struct kvw_head *head)
{
	for (size_t i = 0; i < head->field_count; i++) {
		const struct kvw_field *field = &head->fields[i];

		if (kvw_slice_equal_nocase(field->name, KVW_SLICE("content-encoding")) &&
			field->value.len > 0 &&
			!kvw_slice_equal_nocase(field->value, KVW_SLICE("identity")))
			return field;
	}
	return NULL;
}

bool kvw_unread_refuses_encoded(struct kvw_exchange *x, bool read)
{
	const struct kvw_field *field =
		x->path.prompt || read ? encoding(&x->loop->request_head) : NULL;
	char message[192];

	if (field == NULL)
		return false;
	(void)snprintf(message, sizeof(message),
		"the body has Content-Encoding: %.*s, which engines do not read: switch off the "
		"compression of requests",
		(int)(field->value.len < 32 ? field->value.len : 32), field->value.data);
	kvw_unread_note(x, KVW_COUNT_ENCODED_REQUESTS,
		"a request's body has a Content-Encoding: answered 415");
	kvw_reply_error_as(x, 415, NULL, NULL, "accept-encoding: identity\r\n", message);
	return true;
}

void kvw_unread_body(struct kvw_exchange *x)
{
	kvw_unread_note(x, KVW_COUNT_SCAN_REJECTED, "a request's body is not what its path takes");
}

void kvw_unread_ask_plain(const struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w)
{
	bool found = false;

	if (!x->path.prompt)
		return;
	for (size_t i = 0; i < head->field_count; i++) {
		if (!kvw_slice_equal_nocase(head->fields[i].name, KVW_SLICE("accept-encoding")))
			continue;
		head->fields[i].hop_by_hop = true;
		found = true;
	}
	if (found)
		kvw_write_literal(w, "Accept-Encoding: identity\r\n");
}

void kvw_unread_answer(const struct kvw_exchange *x, const struct kvw_head *head)
{
	if (x->path.prompt && head->status == 200 && encoding(head) != NULL)
		kvw_unread_note(x, KVW_COUNT_ENCODED_ANSWERS,
			"an answer to a prompt has a Content-Encoding: its usage is not seen");
}
