/* otlp.c - what both encodings say of the program that sends the spans. */
#include "otel/otlp.h"

/* Flags of a span besides those of its context: it is known whether the parent is in another
 * process, and it is. */
#define FLAG_KNOWS_REMOTE 0x100
#define FLAG_REMOTE       0x200

uint32_t kvw_otlp_flags(const struct kvw_spans *set, const struct kvw_span *span)
{
	return set->flags | FLAG_KNOWS_REMOTE |
	       (span->kind == KVW_SPAN_SERVER && span->parent != 0 ? FLAG_REMOTE : 0U);
}

static void add_text(void (*add)(void *arg, const struct kvw_attribute *attribute), void *arg,
	const char *key, const char *value)
{
	const struct kvw_attribute attribute = {
		.key = kvw_slice_of(key), .type = KVW_ATTRIBUTE_TEXT, .text = kvw_slice_of(value)};

	add(arg, &attribute);
}

/* Returns whether the user's attributes have this one. */
static bool is_given(const struct kvw_otel_settings *settings, const char *key)
{
	for (size_t i = 0; i < settings->resource_count; i++)
		if (strcmp(settings->resource[i].name, key) == 0)
			return true;
	return false;
}

void kvw_otlp_resource(const struct kvw_otlp_sender *sender,
	void (*add)(void *arg, const struct kvw_attribute *attribute), void *arg)
{
	const struct kvw_otel_settings *settings = sender->settings;

	add_text(add, arg, "service.name", settings->service_name);
	if (!is_given(settings, "service.version"))
		add_text(add, arg, "service.version", KVW_VERSION);
	if (!is_given(settings, "service.instance.id"))
		add_text(add, arg, "service.instance.id", sender->instance);
	for (size_t i = 0; i < settings->resource_count; i++)
		if (strcmp(settings->resource[i].name, "service.name") != 0)
			add_text(add, arg, settings->resource[i].name, settings->resource[i].value);
}
