/*
 * fuzz_render.c - any bytes as a manifest of HyperPod.
 *
 * A refusal says why, in short printable lines, and writes nothing; what is written is YAML of the kind
 * that kvway itself reads, and the configuration in it is one that kvway takes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "kvway/route.h"
#include "render/command.h"
#include "settings/document.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const starts[] = {"f.yaml:", "--model-source: ", NULL};

/* Each document by itself: kvway's reader takes one. */
static void check_documents(char *text)
{
	struct kvw_document document;
	struct kvw_report report;

	for (char *begin = strstr(text, "---\n"); begin != NULL;) {
		char *end = strstr(begin + 4, "\n---\n");
		size_t len = end != NULL ? (size_t)(end + 1 - begin) : strlen(begin);

		kvw_report_start(&report, "out", stderr);
		require(kvw_document_parse(begin, len, &report, &document) == KVW_OK);
		require(report.mistakes == 0 && document.root != NULL && document.root->kind == KVW_NODE_MAP);
		kvw_document_finish(&document);
		begin = end != NULL ? end + 1 : NULL;
	}
}

/* Renders; the text is the caller's, NULL: nothing was written. */
static char *render(enum kvw_render_part part, const char *text, size_t size, size_t *written)
{
	struct kvw_render_options options = {.output = "-",
		.image = "image:1",
		.kvway_image = "kvway:1",
		.kvtierd_image = "kvtierd:1",
		.redis_image = "redis:1",
		.model_source = "hf://org/model",
		.cluster_domain = "cluster.local",
		.l1_size = UINT64_C(1) << 30,
		.l2_size = UINT64_C(1) << 30,
		.part = part};
	char *said = NULL, *out = NULL;
	size_t said_size = 0;
	FILE *errors = open_memstream(&said, &said_size), *memory = open_memstream(&out, written);
	bool done;

	require(errors != NULL && memory != NULL);
	if (size > 0 && strstr(text, "InferenceEndpointConfig") != NULL)
		options.model_source = NULL;
	done = kvw_render_text(&options, "f.yaml", text, size, memory, errors);
	fclose(errors);
	fclose(memory);
	check_lines(said, starts);
	require(done || (*written == 0 && said_size > 0));
	free(said);
	if (done)
		return out;
	free(out);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_config *config = NULL;
	char *text = malloc(size + 1), *out;
	size_t written = 0;

	require(text != NULL);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	out = render(KVW_PART_OBJECTS, text, size, &written);
	if (out != NULL) {
		require(strlen(out) == written);
		check_documents(out);
		free(out);
		out = render(KVW_PART_CONFIG, text, size, &written);
		require(out != NULL);
		if (strstr(out, "\ntls:") == NULL) /* whose files are not here */
			require(kvw_config_parse("kvway.yaml", out, written, kvw_strategies, stderr, &config) == KVW_OK);
		kvw_config_destroy(config);
		free(out);
	}
	free(text);
	return 0;
}
