/*
 * helpers.h - load a text and keep what was said about it.
 */
#ifndef KVW_TEST_CONFIG_HELPERS_H
#define KVW_TEST_CONFIG_HELPERS_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "routing/strategies.h"

static const struct kvw_strategy_ops *const test_strategies[] = {
	&kvw_prefixaware_ops, &kvw_session_ops, &kvw_roundrobin_ops, NULL};

#define TEST_WORKER "workers:\n  - url: http://127.0.0.1:8001\n"

/* What a load did. */
struct loaded {
	enum kvw_err err;
	struct kvw_config *config; /* NULL unless err is KVW_OK */
	char *errors;              /* never NULL */
	size_t lines;              /* of errors */
};

static inline void loaded_count(struct loaded *loaded)
{
	for (const char *c = loaded->errors; *c != '\0'; c++)
		loaded->lines += *c == '\n';
}

static inline struct loaded load_bytes(const char *text, size_t len)
{
	struct loaded loaded = {0};
	size_t size = 0;
	FILE *errors = open_memstream(&loaded.errors, &size);

	ck_assert_ptr_nonnull(errors);
	loaded.err = kvw_config_parse("t.yaml", text, len, test_strategies, errors, &loaded.config);
	fclose(errors);
	loaded_count(&loaded);
	return loaded;
}

static inline struct loaded load_text(const char *text)
{
	return load_bytes(text, strlen(text));
}

static inline void loaded_release(struct loaded *loaded)
{
	kvw_config_destroy(loaded->config);
	free(loaded->errors);
}

#endif
