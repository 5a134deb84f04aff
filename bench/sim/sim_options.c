/*
 * sim_options.c - the command line of kvsim.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_fail.h"
#include "bench/sim/sim_options.h"
#include "bench/sim/sim_help.h"
#include "bench/sim/sim_size.h"

enum {
	OPT_WORKERS = 256,
	OPT_PORT,
	OPT_HOST,
	OPT_THREADS,
	OPT_PORTS_FILE,
	OPT_MODEL,
	OPT_LORA,
	OPT_RANKS,
	OPT_HYBRID,
	OPT_RANK_INDEX,
	OPT_PROFILE,
	OPT_PREFILL,
	OPT_LIST,
	OPT_SPEED,
	OPT_KV,
	OPT_BLOCK,
	OPT_BATCHED,
	OPT_SEQS,
	OPT_QUEUED,
	OPT_FULL_AS,
	OPT_LEN,
	OPT_DEFAULT_TOKENS,
	OPT_SSE_KEEP_ALIVE,
	OPT_SEED,
	OPT_DRAFTS,
	OPT_DRIFT,
	OPT_REQUEST_ID,
	OPT_DETAILS,
	OPT_SCALE_OUT,
	OPT_KEEPALIVE,
	OPT_MAX_BODY,
	OPT_FIXED,
	OPT_STREAM,
	OPT_KV_EVENTS,
	OPT_KV_ENCODING,
	OPT_KV_HASHES,
	OPT_KV_REPLAY,
	OPT_LMC_CONTROLLER,
	OPT_LMC_COORDINATOR,
	OPT_LMC_FLUSH,
	OPT_LMC_TRANSFERS,
	OPT_LMC_VERSION,
	OPT_LMC_INSTANCE,
	OPT_LMC_CHUNK,
	OPT_LMC_HASH,
	OPT_LMC_SEED,
	OPT_LMC_TOKENS,
	OPT_LMC_LOAD,
	OPT_LMC_HEARTBEAT,
	OPT_LMC_TIMEOUT,
	OPT_LMC_PORT,
	OPT_LMC_BATCH,
	OPT_FRAGMENTS,
	OPT_FRAG_SEPARATOR,
	OPT_FRAG_MIN,
	OPT_FRAG_MEMORY,
	OPT_FRAG_DISK,
	OPT_FRAG_ROTATE,
	OPT_FRAG_LAYERS,
	OPT_NIXL,
	OPT_TRANSFER,
	OPT_L1,
	OPT_NVME,
	OPT_L2,
	OPT_SEGMENT,
	OPT_TIER_CONFIG,
	OPT_KV_BYTES,
	OPT_SHRINK,
	OPT_RECOMPUTE,
	OPT_TIMING,
	OPT_LINK,
	OPT_LINKS,
	OPT_HELP
};

static const struct option long_options[] = {
	{"workers", required_argument, NULL, OPT_WORKERS},
	{"port", required_argument, NULL, OPT_PORT},
	{"host", required_argument, NULL, OPT_HOST},
	{"threads", required_argument, NULL, OPT_THREADS},
	{"ports-file", required_argument, NULL, OPT_PORTS_FILE},
	{"model", required_argument, NULL, OPT_MODEL},
	{"lora", required_argument, NULL, OPT_LORA},
	{"data-parallel-size", required_argument, NULL, OPT_RANKS},
	{"data-parallel-hybrid-lb", no_argument, NULL, OPT_HYBRID},
	{"data-parallel-rank-index", required_argument, NULL, OPT_RANK_INDEX},
	{"profile", required_argument, NULL, OPT_PROFILE},
	{"prefill-rate", required_argument, NULL, OPT_PREFILL},
	{"list-profiles", no_argument, NULL, OPT_LIST},
	{"speed", required_argument, NULL, OPT_SPEED},
	{"kv-tokens", required_argument, NULL, OPT_KV},
	{"block-size", required_argument, NULL, OPT_BLOCK},
	{"max-batched-tokens", required_argument, NULL, OPT_BATCHED},
	{"max-seqs", required_argument, NULL, OPT_SEQS},
	{"max-queued", required_argument, NULL, OPT_QUEUED},
	{"full-as", required_argument, NULL, OPT_FULL_AS},
	{"max-model-len", required_argument, NULL, OPT_LEN},
	{"default-tokens", required_argument, NULL, OPT_DEFAULT_TOKENS},
	{"sse-keep-alive-interval", required_argument, NULL, OPT_SSE_KEEP_ALIVE},
	{"seed", required_argument, NULL, OPT_SEED},
	{"drafts", required_argument, NULL, OPT_DRAFTS},
	{"drift", required_argument, NULL, OPT_DRIFT},
	{"request-id-headers", no_argument, NULL, OPT_REQUEST_ID},
	{"prompt-tokens-details", required_argument, NULL, OPT_DETAILS},
	{"enable-scale-out", no_argument, NULL, OPT_SCALE_OUT},
	{"keepalive-s", required_argument, NULL, OPT_KEEPALIVE},
	{"max-body", required_argument, NULL, OPT_MAX_BODY},
	{"fixed-response", required_argument, NULL, OPT_FIXED},
	{"fixed-stream", required_argument, NULL, OPT_STREAM},
	{"kv-events-config", required_argument, NULL, OPT_KV_EVENTS},
	{"kv-events-encoding", required_argument, NULL, OPT_KV_ENCODING},
	{"kv-events-hash", required_argument, NULL, OPT_KV_HASHES},
	{"kv-events-replay", required_argument, NULL, OPT_KV_REPLAY},
	{"lmcache-controller", required_argument, NULL, OPT_LMC_CONTROLLER},
	{"lmcache-coordinator", required_argument, NULL, OPT_LMC_COORDINATOR},
	{"lmcache-flush-s", required_argument, NULL, OPT_LMC_FLUSH},
	{"lmcache-transfers", required_argument, NULL, OPT_LMC_TRANSFERS},
	{"lmcache-version", required_argument, NULL, OPT_LMC_VERSION},
	{"lmcache-instance", required_argument, NULL, OPT_LMC_INSTANCE},
	{"lmcache-chunk-size", required_argument, NULL, OPT_LMC_CHUNK},
	{"lmcache-hash", required_argument, NULL, OPT_LMC_HASH},
	{"lmcache-seed", required_argument, NULL, OPT_LMC_SEED},
	{"lmcache-cpu-tokens", required_argument, NULL, OPT_LMC_TOKENS},
	{"lmcache-load-ns", required_argument, NULL, OPT_LMC_LOAD},
	{"lmcache-heartbeat-s", required_argument, NULL, OPT_LMC_HEARTBEAT},
	{"lmcache-timeout-s", required_argument, NULL, OPT_LMC_TIMEOUT},
	{"lmcache-worker-port", required_argument, NULL, OPT_LMC_PORT},
	{"lmcache-sync-batch", required_argument, NULL, OPT_LMC_BATCH},
	{"fragments", required_argument, NULL, OPT_FRAGMENTS},
	{"fragments-separator", required_argument, NULL, OPT_FRAG_SEPARATOR},
	{"fragments-min", required_argument, NULL, OPT_FRAG_MIN},
	{"fragments-memory", required_argument, NULL, OPT_FRAG_MEMORY},
	{"fragments-disk", required_argument, NULL, OPT_FRAG_DISK},
	{"fragments-rotate", required_argument, NULL, OPT_FRAG_ROTATE},
	{"fragments-layers", required_argument, NULL, OPT_FRAG_LAYERS},
	{"nixl", required_argument, NULL, OPT_NIXL},
	{"transfer", required_argument, NULL, OPT_TRANSFER},
	{"l1", required_argument, NULL, OPT_L1},
	{"nvme", required_argument, NULL, OPT_NVME},
	{"l2", required_argument, NULL, OPT_L2},
	{"l2-segment", required_argument, NULL, OPT_SEGMENT},
	{"tier-config", required_argument, NULL, OPT_TIER_CONFIG},
	{"kv-bytes-per-token", required_argument, NULL, OPT_KV_BYTES},
	{"shrink", required_argument, NULL, OPT_SHRINK},
	{"fetch-or-recompute", required_argument, NULL, OPT_RECOMPUTE},
	{"tier-timing", required_argument, NULL, OPT_TIMING},
	{"link", required_argument, NULL, OPT_LINK},
	{"list-links", no_argument, NULL, OPT_LINKS},
	{"help", no_argument, NULL, OPT_HELP},
	{NULL, 0, NULL, 0},
};

static bool wrong(const char *option, const char *found, const char *expected)
{
	fprintf(stderr, "kvsim: %s: found \"%s\", expected %s\n", option, found, expected);
	return false;
}

static bool parse_whole(
	const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	char expected[80], *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < least ||
		value > most) {
		snprintf(expected, sizeof(expected), "a whole number from %llu to %llu",
			(unsigned long long)least, (unsigned long long)most);
		return wrong(option, text, expected);
	}
	*out = value;
	return true;
}

static bool parse_size(
	const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	uint64_t value;

	if (!kvb_parse_size(text, &value) || value < least || value > most)
		return wrong(option, text, KVB_SIZE_EXPECTED);
	*out = value;
	return true;
}

static bool parse_u32(
	const char *option, const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
	uint64_t value;

	if (!parse_whole(option, text, least, most, &value))
		return false;
	*out = (uint32_t)value;
	return true;
}

static bool parse_real(const char *option, const char *text, double least, double *out)
{
	char expected[60], *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !isfinite(value) || value < least || value > 1e9) {
		snprintf(expected, sizeof(expected), "a number of at least %g", least);
		return wrong(option, text, expected);
	}
	*out = value;
	return true;
}

static bool parse_stream(const char *text, struct kvb_options *o)
{
	int used = 0;

	if (sscanf(text, "%u:%lf:%u%n", &o->stream_chunks, &o->stream_interval_ms, &o->stream_bytes,
		    &used) != 3 ||
		text[used] != '\0' || o->stream_chunks == 0 || o->stream_chunks > 100000000 ||
		!(o->stream_interval_ms >= 0 && o->stream_interval_ms < 1e7) ||
		o->stream_bytes < 80 || o->stream_bytes > (1 << 20))
		return wrong("--fixed-stream", text,
			"EVENTS:MILLISECONDS:BYTES, bytes from 80 to 1048576");
	return true;
}

static bool parse_choice(
	const char *option, const char *text, const char *no, const char *yes, bool *out)
{
	char expected[40];

	*out = strcmp(text, yes) == 0;
	if (*out || strcmp(text, no) == 0)
		return true;
	snprintf(expected, sizeof(expected), "%s or %s", no, yes);
	return wrong(option, text, expected);
}

static bool parse_server(int option, const char *text, struct kvb_options *o)
{
	uint64_t value;

	switch (option) {
	case OPT_WORKERS:
		return parse_u32("--workers", text, 1, 4096, &o->workers);
	case OPT_THREADS:
		return parse_u32("--threads", text, 1, 256, &o->threads);
	case OPT_PORT:
		if (!parse_whole("--port", text, 0, 65535, &value))
			return false;
		o->port = (uint16_t)value;
		return true;
	case OPT_HOST:
		o->host = text;
		return true;
	case OPT_RANKS:
		return parse_u32("--data-parallel-size", text, 1, 64, &o->ranks);
	case OPT_HYBRID:
		o->hybrid = true;
		return true;
	case OPT_RANK_INDEX:
		return parse_choice(
			"--data-parallel-rank-index", text, "local", "global", &o->rank_is_global);
	case OPT_PORTS_FILE:
		o->ports_file = text;
		return true;
	case OPT_KEEPALIVE:
		return parse_real("--keepalive-s", text, 0, &o->keepalive_s);
	case OPT_MAX_BODY:
		if (!parse_size("--max-body", text, 1, UINT64_C(1) << 40, &value))
			return false;
		o->max_body = (size_t)value;
		return true;
	case OPT_FIXED:
		if (!parse_size("--fixed-response", text, 2, 1 << 28, &value))
			return false;
		o->fixed_response = (size_t)value;
		return true;
	case OPT_STREAM:
		return parse_stream(text, o);
	default:
		return false;
	}
}

static bool parse_events(int option, const char *text, struct kvb_events_options *o)
{
	switch (option) {
	case OPT_KV_EVENTS:
		return kvb_events_parse(text, o);
	case OPT_KV_ENCODING:
		return parse_choice(
			"--kv-events-encoding", text, "maps", "arrays", &o->style.arrays);
	case OPT_KV_HASHES:
		return parse_choice("--kv-events-hash", text, "int", "bytes", &o->style.bytes);
	case OPT_KV_REPLAY:
		return parse_choice("--kv-events-replay", text, "new", "old", &o->old_replay);
	default:
		return false;
	}
}

static bool parse_lmcache(int option, const char *text, struct kvb_lmcache_options *o)
{
	uint64_t value;

	switch (option) {
	case OPT_LMC_CONTROLLER:
		return kvb_lmcache_parse_controller(text, o);
	case OPT_LMC_COORDINATOR:
		return kvb_lmcache_parse_coordinator(text, o);
	case OPT_LMC_FLUSH:
		return parse_real("--lmcache-flush-s", text, 0.001, &o->flush_s);
	case OPT_LMC_TRANSFERS:
		return parse_choice(
			"--lmcache-transfers", text, "lmcache", "engine", &o->engine_driven);
	case OPT_LMC_VERSION:
		return kvb_lmcache_parse_version(text, o);
	case OPT_LMC_INSTANCE:
		o->instance = text;
		return text[0] != '\0' || wrong("--lmcache-instance", text, "a name");
	case OPT_LMC_CHUNK:
		return parse_u32("--lmcache-chunk-size", text, 1, KVW_LMCACHE_CHUNK_MAX,
			&o->recipe.chunk_size);
	case OPT_LMC_HASH:
		return kvb_lmcache_parse_hash(text, o);
	case OPT_LMC_SEED:
		o->recipe.seed = text;
		return true;
	case OPT_LMC_TOKENS:
		return parse_u32(
			"--lmcache-cpu-tokens", text, 1, UINT32_C(1) << 30, &o->cpu_tokens);
	case OPT_LMC_LOAD:
		if (!parse_whole("--lmcache-load-ns", text, 0, 1000000000, &value))
			return false;
		o->load_ns = (int64_t)value;
		return true;
	case OPT_LMC_HEARTBEAT:
		return parse_real("--lmcache-heartbeat-s", text, 0, &o->heartbeat_s);
	case OPT_LMC_TIMEOUT:
		return parse_real("--lmcache-timeout-s", text, 0.01, &o->timeout_s);
	case OPT_LMC_PORT:
		if (!parse_whole("--lmcache-worker-port", text, 0, 65535, &value))
			return false;
		o->worker_port = (uint16_t)value;
		return true;
	case OPT_LMC_BATCH:
		return parse_u32("--lmcache-sync-batch", text, 1, 100000, &o->sync_batch);
	default:
		return false;
	}
}

static bool parse_tier(int option, const char *text, struct kvb_tier_options *o)
{
	uint64_t bytes;

	switch (option) {
	case OPT_L1:
		return kvb_tier_parse_l1(text, o);
	case OPT_NVME:
		return kvb_tier_parse_nvme(text, o);
	case OPT_L2:
		return kvb_tier_parse_l2(text, o);
	case OPT_SEGMENT:
		return kvb_tier_parse_segment(text, o);
	case OPT_TIER_CONFIG:
		return kvb_tier_parse_config(text, o);
	case OPT_KV_BYTES:
		if (!parse_size("--kv-bytes-per-token", text, 1, 1 << 24, &bytes))
			return false;
		o->kv_bytes = (uint32_t)bytes;
		return true;
	case OPT_SHRINK:
		return parse_u32("--shrink", text, 1, KVB_SHRINK_MOST, &o->shrink);
	case OPT_RECOMPUTE:
		return parse_choice("--fetch-or-recompute", text, "off", "on", &o->recompute);
	case OPT_TIMING:
		return kvb_tier_parse_timing(text, o);
	case OPT_LINK:
		return kvb_tier_parse_link(text, o);
	default:
		return false;
	}
}

static bool parse_share(const char *option, const char *text, double *out)
{
	return parse_real(option, text, 0, out) &&
	       (*out <= 1 || wrong(option, text, "a share from 0 to 1"));
}

static bool parse_drafts(const char *text, struct kvb_options *o)
{
	int used = 0;

	return (sscanf(text, "%u:%lf%n", &o->draft_tokens, &o->draft_share, &used) == 2 && text[used] == '\0' &&
		       o->draft_tokens >= 1 && o->draft_tokens <= 64 && o->draft_share >= 0 &&
		       o->draft_share <= 1) ||
	       wrong("--drafts", text, "tokens and a share, such as 3:0.6");
}

static bool parse_fragments(int option, const char *text, struct kvb_fragments_options *o)
{
	switch (option) {
	case OPT_FRAGMENTS:
		o->on = true;
		return parse_share("--fragments", text, &o->share);
	case OPT_FRAG_SEPARATOR:
		o->separator = text;
		return true;
	case OPT_FRAG_MIN:
		return parse_u32("--fragments-min", text, 1, 1 << 24, &o->min_tokens);
	case OPT_FRAG_MEMORY:
		return parse_u32(
			"--fragments-memory", text, 1, UINT32_C(1) << 30, &o->memory_tokens);
	case OPT_FRAG_DISK:
		return parse_u32("--fragments-disk", text, 0, UINT32_C(1) << 30, &o->disk_tokens);
	case OPT_FRAG_ROTATE:
		o->rotate_bytes_per_s = strtod(text, NULL);
		return (o->rotate_bytes_per_s >= 1e6 && o->rotate_bytes_per_s <= 1e15) ||
		       wrong("--fragments-rotate", text, "bytes a second, 1e6 to 1e15");
	case OPT_FRAG_LAYERS:
		return parse_share("--fragments-layers", text, &o->first_layers);
	default:
		return false;
	}
}

/* Sets the speed of fragments' loads from the tiers' links. */
static void complete_fragments(struct kvb_options *o)
{
	const struct kvb_link *const *links = o->tier.links;
	struct kvb_fragments_options *f = &o->fragments;

	f->kv_bytes = o->tier.kv_bytes > 0 ? o->tier.kv_bytes : o->profile->kv_bytes;
	f->memory = links[KVB_LINK_GPU] != NULL ? links[KVB_LINK_GPU]
						: kvb_link_default(KVB_LINK_GPU);
	f->disk = links[KVB_LINK_NVME] != NULL ? links[KVB_LINK_NVME]
					       : kvb_link_default(KVB_LINK_NVME);
}

static bool parse_full_as(const char *text, struct kvb_options *o)
{
	static const char *const names[] = {"503", "event", "429"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		o->full_as = (enum kvb_full_as)i;
		if (strcmp(text, names[i]) == 0)
			return true;
	}
	return wrong("--full-as", text, "503, event or 429");
}

static bool parse_engine(int option, const char *text, struct kvb_options *o)
{
	switch (option) {
	case OPT_PROFILE:
		o->profile = kvb_profile_find(text);
		return o->profile != NULL || wrong("--profile", text, "a name of --list-profiles");
	case OPT_PREFILL:
		return parse_real("--prefill-rate", text, 1, &o->prefill_rate);
	case OPT_SPEED:
		return parse_real("--speed", text, 0.001, &o->speed);
	case OPT_KV:
		return parse_u32("--kv-tokens", text, 32, UINT32_C(1) << 30, &o->kv_tokens);
	case OPT_BLOCK:
		return parse_u32("--block-size", text, 1, 4096, &o->block_size);
	case OPT_BATCHED:
		return parse_u32(
			"--max-batched-tokens", text, 1, UINT32_C(1) << 30, &o->max_batched_tokens);
	case OPT_SEQS:
		return parse_u32("--max-seqs", text, 1, 1 << 20, &o->max_seqs);
	case OPT_QUEUED:
		return parse_u32("--max-queued", text, 1, 1 << 20, &o->max_queued);
	case OPT_FULL_AS:
		return parse_full_as(text, o);
	case OPT_LEN:
		return parse_u32("--max-model-len", text, 2, UINT32_C(1) << 28, &o->max_model_len);
	case OPT_SSE_KEEP_ALIVE:
		return parse_real("--sse-keep-alive-interval", text, 0, &o->keep_alive_s);
	case OPT_DEFAULT_TOKENS:
		return parse_u32("--default-tokens", text, 1, 1 << 24, &o->default_tokens);
	case OPT_SEED:
		return parse_whole("--seed", text, 0, UINT64_MAX, &o->seed);
	case OPT_DRAFTS:
		return parse_drafts(text, o);
	case OPT_DRIFT:
		return parse_share("--drift", text, &o->drift);
	default:
		return parse_server(option, text, o);
	}
}

static bool parse_answers(int option, const char *text, struct kvb_options *o)
{
	switch (option) {
	case OPT_MODEL:
		o->model = text;
		return text[0] != '\0' || wrong("--model", text, "a name");
	case OPT_LORA:
		if (o->lora_count == KVB_LORA_MOST)
			return wrong("--lora", text, "at most 16 of them");
		o->loras[o->lora_count++] = text;
		return true;
	case OPT_REQUEST_ID:
		o->request_id_headers = true;
		return true;
	case OPT_DETAILS:
		o->prompt_tokens_details = strcmp(text, "on") == 0;
		return o->prompt_tokens_details || strcmp(text, "off") == 0 ||
		       wrong("--prompt-tokens-details", text, "on or off");
	case OPT_SCALE_OUT:
		o->scale_out = true;
		return true;
	default:
		if (option == OPT_NIXL)
			return kvb_nixl_parse(text, &o->nixl);
		if (option == OPT_TRANSFER)
			return kvb_transfer_parse(text, &o->nixl);
		if (option >= OPT_L1 && option <= OPT_LINK)
			return parse_tier(option, text, &o->tier);
		if (option >= OPT_FRAGMENTS && option <= OPT_FRAG_LAYERS)
			return parse_fragments(option, text, &o->fragments);
		if (option >= OPT_LMC_CONTROLLER && option <= OPT_LMC_BATCH)
			return parse_lmcache(option, text, &o->lmcache);
		if (option >= OPT_KV_EVENTS && option <= OPT_KV_REPLAY)
			return parse_events(option, text, &o->events);
		return parse_engine(option, text, o);
	}
}

/* Sets options that follow from others; returns false, with a message, if some do not fit
 * together. */
static bool complete(struct kvb_options *o)
{
	uint64_t usable;

	if (o->port != 0 && (uint32_t)o->port + o->workers - 1 > 65535) {
		fprintf(stderr, "kvsim: --port %u leaves no room for %u workers\n", o->port,
			o->workers);
		return false;
	}
	if (o->fixed_response != 0 && o->stream_chunks != 0) {
		fprintf(stderr, "kvsim: --fixed-response and --fixed-stream exclude each other\n");
		return false;
	}
	if (o->prefill_rate > 0) {
		o->own_profile = *o->profile;
		o->own_profile.prefill_tps = o->prefill_rate;
		o->profile = &o->own_profile;
	}
	if (o->kv_tokens == 0)
		o->kv_tokens = o->profile->kv_tokens;
	if (o->kv_tokens / o->block_size < 2) {
		fprintf(stderr, "kvsim: --kv-tokens %u holds fewer than two blocks of %u\n",
			o->kv_tokens, o->block_size);
		return false;
	}
	if (o->max_model_len == 0)
		o->max_model_len = o->profile->max_model_len;
	usable = (uint64_t)(o->kv_tokens / o->block_size - 1) * o->block_size;
	if (o->max_model_len > usable)
		o->max_model_len = (uint32_t)usable;
	if (o->threads > o->workers)
		o->threads = o->workers;
	if (o->nixl.on && o->tier.on) {
		fprintf(stderr, "kvsim: --nixl and tiers exclude each other\n");
		return false;
	}
	complete_fragments(o);
	return kvb_lmcache_complete(&o->lmcache) && kvb_tier_complete(o);
}

enum kvb_options_result kvb_options_parse(int argc, char **argv, struct kvb_options *options)
{
	int option;

	*options = (struct kvb_options){.workers = 1,
		.ranks = 1,
		.threads = 1,
		.host = "127.0.0.1",
		.model = "sim",
		.profile = kvb_profile_find("reference"),
		.speed = 1,
		.block_size = 16,
		.max_batched_tokens = 8192,
		.max_seqs = 256,
		.default_tokens = 128,
		.keepalive_s = 5,
		.prompt_tokens_details = true,
		.max_body = (size_t)1 << 30,
		.nixl = {.bandwidth = 10e9, .latency_s = 0.005, .lease_s = 30},
		.events = {.endpoint = "tcp://*:5557",
			.buffer_steps = 10000,
			.max_queue_size = 100000,
			.hwm = 100000},
		.lmcache = {.version = KVB_LMCACHE_05,
			.instance = "kvsim",
			.recipe = {.seed = "0", .chunk_size = 256},
			.hash = "builtin",
			.cpu_tokens = 262144,
			.load_ns = 2000,
			.heartbeat_s = 1,
			.flush_s = 1,
			.timeout_s = 30,
			.sync_batch = 2000}};
	kvb_tier_options_init(&options->tier);
	kvb_fragments_init(&options->fragments);
	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (option == OPT_HELP || option == 'h') {
			fputs(kvb_sim_help, stdout);
			kvb_fail_list(stdout);
			return KVB_OPTIONS_DONE;
		}
		if (option == OPT_LINKS) {
			kvb_link_list(stdout);
			return KVB_OPTIONS_DONE;
		}
		if (option == OPT_LIST) {
			kvb_profile_list(stdout);
			return KVB_OPTIONS_DONE;
		}
		if (option == '?' || !parse_answers(option, optarg, options)) {
			fprintf(stderr, "Try `kvsim --help`.\n");
			return KVB_OPTIONS_WRONG;
		}
	}
	if (optind < argc) {
		wrong("argument", argv[optind], "options only; see `kvsim --help`");
		return KVB_OPTIONS_WRONG;
	}
	return complete(options) ? KVB_OPTIONS_RUN : KVB_OPTIONS_WRONG;
}

void kvb_options_finish(struct kvb_options *options)
{
	kvb_tier_options_finish(&options->tier);
}
