/*
 * fuzz_lmcache.c - any bytes as LMCache's configuration: a file, and after each NUL a variable.
 *
 * Beyond "no crash": mistakes are reported in short printable lines that name a file or a variable,
 * and the settings that come out read without a single mistake, whatever went in.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache/lmcache.h"
#include "tests/fuzz/lines.h"

#define VARIABLES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const starts[] = {"f.yaml:", "LMCACHE_", "lmcache.", NULL};

static char *printed(const struct kvt_lmcache_reading *r,
	void (*print)(const struct kvt_lmcache_reading *r, FILE *out))
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	require(out != NULL);
	print(r, out);
	require(fclose(out) == 0);
	return text;
}

static void check_result(const struct kvt_lmcache_reading *r)
{
	struct kvt_config config;
	char *settings = printed(r, kvt_lmcache_print_settings);
	char *own = printed(r, kvt_lmcache_print_own);
	char *explained = printed(r, kvt_lmcache_explain);
	char *report = NULL;

	kvt_config_init(&config, sizeof(config));
	require(kvt_config_read(&config, "s", settings, strlen(settings), &report) == KVT_OK);
	require(config.l1_capacity >= 1 << 20);
	require(own[0] == '{' && strchr(own, '\n')[-1] == '}');
	check_lines(r->mistakes.text, starts);
	check_lines(r->notes.text, starts);
	kvt_config_finish(&config);
	free(settings);
	free(own);
	free(explained);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *variables[VARIABLES + 1] = {NULL};
	struct kvt_lmcache_source source = {
		.size = sizeof(source), .rank = size % 3, .ranks = 3, .variables = variables};
	char *text = malloc(size + 1);
	struct kvt_lmcache_reading *r;
	size_t count = 0, len;

	require(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	len = strlen(text);
	for (size_t at = len + 1; at < size && count < VARIABLES; at += strlen(text + at) + 1)
		variables[count++] = text + at;
	require(kvt_lmcache_begin(&r, &source) == KVW_OK);
	kvt_lmcache_translate(r, "f.yaml", text, len);
	require(r->err == KVW_OK);
	check_result(r);
	kvt_lmcache_is_likely("f.yaml", text, len);
	kvt_lmcache_has_variables(variables);
	kvt_lmcache_finish_reading(r);
	free(text);
	return 0;
}
