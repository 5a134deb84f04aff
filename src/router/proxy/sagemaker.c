/*
 * sagemaker.c - SageMaker's fields in the head of a request to /invocations, which workers obey.
 */
#include "proxy/sagemaker.h"

#include <stdatomic.h>
#include <string.h>

#include "proxy/whose.h"

#define ADAPTER_FIELD     KVW_SLICE("X-Amzn-SageMaker-Adapter-Identifier")
#define SESSION_FIELD     KVW_SLICE("X-Amzn-SageMaker-Session-Id")
#define NEW_SESSION_FIELD KVW_SLICE("X-Amzn-SageMaker-New-Session-Id")
#define CLOSED_FIELD      KVW_SLICE("X-Amzn-SageMaker-Closed-Session-Id")

static struct kvw_slice sagemaker_field(const struct kvw_head *head, struct kvw_slice name)
{
	const struct kvw_field *field = kvw_head_find(head, name);

	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

void kvw_sagemaker_note(struct kvw_exchange *x, const struct kvw_head *head)
{
	x->sagemaker.invocation = x->path.api == KVW_API_INVOCATIONS && x->path.prompt;
	if (!x->sagemaker.invocation)
		return;
	x->sagemaker.adapter = sagemaker_field(head, ADAPTER_FIELD);
	x->sagemaker.session = sagemaker_field(head, SESSION_FIELD);
	if (kvw_sagemaker_no_session(x->sagemaker.session))
		x->sagemaker.session.len = 0;
}

/* Returns whether a model's name can be written into a header field: a worker may name its models
 * with any bytes. */
static bool fits_a_field(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return false;
	return len > 0 && len <= KVW_SAGEMAKER_MODEL;
}

void kvw_sagemaker_name_model(
	const struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w)
{
	const struct kvw_model *model = x->model;

	if (!x->sagemaker.invocation || model == NULL || !fits_a_field(model->name) ||
		(x->sagemaker.adapter.len == 0 &&
			!atomic_load_explicit(&model->adapter, memory_order_relaxed)))
		return;
	for (size_t i = 0; i < head->field_count; i++)
		if (kvw_slice_equal_nocase(head->fields[i].name, ADAPTER_FIELD))
			head->fields[i].hop_by_hop = true;
	kvw_write_field(w, ADAPTER_FIELD, kvw_slice_of(model->name));
}

/* The field's value is the id and its expiry: `ID; Expires=TIME`. */
void kvw_sagemaker_answered(struct kvw_exchange *x, const struct kvw_head *head)
{
	struct kvw_slice id = {NULL, 0};
	const char *end;

	x->sagemaker.handled = false;
	if (x->sagemaker.invocation && head->status == 200) {
		id = sagemaker_field(head, NEW_SESSION_FIELD);
		x->sagemaker.handled =
			id.len > 0 || sagemaker_field(head, CLOSED_FIELD).len > 0;
	}
	end = id.len == 0 ? NULL : memchr(id.data, ';', id.len);
	if (end != NULL)
		id.len = (size_t)(end - id.data);
	while (id.len > 0 && (id.data[id.len - 1] == ' ' || id.data[id.len - 1] == '\t'))
		id.len--;
	if (id.len > 0)
		kvw_whose_take(x, id);
}
