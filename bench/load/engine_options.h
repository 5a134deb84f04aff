/*
 * engine_options.h - the options of `kvbench engine`.
 *
 * Names, defaults and meanings are those of `lmcache bench engine` 0.5.6; those of `rag-qa` and the
 * last group are kvbench's own. A configuration file (--config) holds the same names with '_' for
 * '-'; the command line overrides it.
 */
#ifndef KVB_ENGINE_OPTIONS_H
#define KVB_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "bench/load/option_table.h"

enum kvb_shuffle { KVB_SHUFFLE_RANDOM, KVB_SHUFFLE_TILE };
enum kvb_rag_layout { KVB_RAG_ONE, KVB_RAG_MESSAGES };

/* Strings are borrowed from argv or from `kept`. Lengths are in tokens. */
struct kvb_engine_options {
	const char *engine_url, *lmcache_url;
	const char *model;    /* NULL: the first model in /v1/models */
	const char *workload; /* NULL until the command line names one */
	double kv_cache_volume_gb;
	int64_t tokens_per_gb; /* 0: unknown */
	int64_t seed;
	const char *output_dir;
	bool csv, json, quiet, ignore_eos, warm_up;
	bool no_interactive; /* has no effect; accepted because scripts pass it */
	const char *config, *export_config;

	struct {
		int64_t document_length, queries_per_document, inflight, max_output;
		int shuffle; /* enum kvb_shuffle */
	} ldqa;
	struct {
		int64_t shared_prompt, history, user_input, output;
		double qps, duration_s;
	} mrc;
	struct {
		int64_t contexts, context_length, system_prompt, permutations, inflight, max_output;
	} ldp;
	struct {
		int64_t context_length;
		double prefix_ratio, thrash_gb;
	} psf;
	struct {
		int64_t length, requests;
	} rp;
	struct {
		int64_t documents, document_length, topics, each, requests, inflight, question,
			system_prompt, max_output;
		const char *separator;
		int layout; /* enum kvb_rag_layout */
	} rag;

	const char *tokenizer; /* tokenizer.json or its folder; NULL: none */
	/* file for the summary in JSON, or "-"; NULL: none unless `json` is set */
	const char *summary;
	const char *session_header;
	double timeout_s; /* longest silence, real */
	double speed;     /* the workers' simulated time runs so many times as fast as the clock */
	bool help;

	struct json_t *kept; /* the configuration file, into which strings may point */
};

/*
 * Reads argv[from..]. workload: the one that the command has named already, or NULL. KVW_EINVAL,
 * KVW_EIO: a message was written to error. kvb_engine_options_finish() must be called in any case.
 */
enum kvw_err kvb_engine_options_parse(int argc, char **argv, int from, const char *workload,
	struct kvb_engine_options *out, FILE *error) KVW_MUST_CHECK;
/*
 * Sets the options in a configuration's text; strings then point into options->kept. name: the
 * text's name in messages. KVW_EIO, KVW_EINVAL: a message was written to error.
 */
enum kvw_err kvb_engine_options_read(struct kvb_engine_options *options, const char *text,
	size_t len, const char *name, FILE *error) KVW_MUST_CHECK;
/* Sets the defaults. */
void kvb_engine_options_init(struct kvb_engine_options *out);
void kvb_engine_options_finish(struct kvb_engine_options *options);
void kvb_engine_options_help(FILE *out);
/*
 * Writes a file for a later --config: all options of the workload, without the addresses. KVW_EIO:
 * a message was written to error.
 */
enum kvw_err kvb_engine_options_export(
	const struct kvb_engine_options *options, FILE *error) KVW_MUST_CHECK;

#endif
