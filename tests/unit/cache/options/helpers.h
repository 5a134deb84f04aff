/*
 * helpers.h - read a text over the defaults and keep what was said about it.
 */
#ifndef KVT_TEST_SETTINGS_HELPERS_H
#define KVT_TEST_SETTINGS_HELPERS_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "options/setting.h"
#include "options/settings.h"

/* What a read did. */
struct reading {
	enum kvt_status status;
	struct kvt_config config;
	char *report; /* NULL: nothing was said */
	size_t lines; /* of report */
};

static inline struct reading read_bytes(const char *text, size_t len)
{
	struct reading r = {0};

	kvt_config_init(&r.config, sizeof(r.config));
	r.status = kvt_config_read(&r.config, "t.yaml", text, len, &r.report);
	for (const char *c = r.report; c != NULL && *c != '\0'; c++)
		r.lines += *c == '\n';
	return r;
}

static inline struct reading read_text(const char *text)
{
	return read_bytes(text, strlen(text));
}

static inline void reading_release(struct reading *r)
{
	kvt_config_finish(&r->config);
	kvt_text_free(r->report);
}

#endif
