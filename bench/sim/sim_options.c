/*
 * sim_options.c - the command line of kvsim and its help.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_fail.h"
#include "bench/sim/sim_options.h"
#include "bench/sim/sim_size.h"

static const char help_text[] =
	"kvsim - simulated vLLM workers\n"
	"\n"
	"Answers like vLLM 0.32 (OpenAI and Anthropic paths, streams, errors, /metrics) with "
	"made-up\n"
	"text, and takes the time that a simulated GPU would take: continuous batching, chunked\n"
	"prefill, LRU prefix cache. Every figure that comes from it is a simulated one.\n"
	"\n"
	"  kvsim --workers 4 --port 8001            four workers on ports 8001 to 8004\n"
	"  kvsim --workers 2 --ports-file p.txt     on free ports, one line per worker in p.txt\n"
	"  kvsim --profile instant                  no simulated time, for tests\n"
	"  kvsim --speed 20                         twenty simulated seconds a second\n"
	"\n"
	"Then: curl -s localhost:8001/v1/chat/completions -H 'content-type: application/json' \\\n"
	"        -d "
	"'{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n"
	"\n"
	"Workers\n"
	"  --workers N             how many in this process (default 1)\n"
	"  --port P                port of the first, the others follow; 0 takes free ones "
	"(default 0)\n"
	"  --host ADDR             IPv4 address to listen on (default 127.0.0.1)\n"
	"  --threads N             event loops that share the workers (default 1)\n"
	"  --ports-file FILE       write \"worker I http://HOST:PORT\" lines there, complete at "
	"once;\n"
	"                          they are printed on standard output in any case\n"
	"  --model NAME            served model (default sim)\n"
	"  --data-parallel-size N  engines behind each server (default 1), each with a cache and events of its\n"
	"                          own; X-data-parallel-rank chooses one. The port of events is theirs + the\n"
	"                          number of all engines before\n"
	"  --data-parallel-hybrid-lb  the servers are one deployment: their ranks count on\n"
	"  --data-parallel-rank-index KIND  what that header counts: local (vLLM's Python frontend, default) or\n"
	"                          global (its Rust frontend)\n"
	"  --lora NAME             a further model name, as a LoRA adapter of it (repeatable)\n"
	"\n"
	"Simulated engine\n"
	"  --profile NAME          costs of model and GPU (default reference); --list-profiles\n"
	"  --prefill-rate N        prompt tokens a second, without attention, instead of the "
	"profile's\n"
	"  --speed X               divides all simulated times (default 1). A result taken at "
	"another\n"
	"                          speed than 1 must say so; /sim/stats shows if it kept up.\n"
	"  --kv-tokens N           KV cache, tokens (default: the profile's). One block is never "
	"used\n"
	"  --block-size N          tokens a block (default 16)\n"
	"  --max-batched-tokens N  token budget of a step (default 8192)\n"
	"  --max-seqs N            sequences running at once (default 256)\n"
	"  --max-queued N          refuse requests while it has so many, as by vLLM's --max-num-queued-reqs (default: never)\n"
	"  --full-as KIND          how: 503 (without Retry-After, default), event (first of a stream), 429\n"
	"  --max-model-len N       longest context (default: the profile's, at most what fits the "
	"cache)\n"
	"  --default-tokens N      length of a chat answer without max_tokens (default 128)\n"
	"  --sse-keep-alive-interval S  a comment in streams of chat and completions that are silent for S\n"
	"                          seconds, as vLLM's option of that name (0: none)\n"
	"  --seed S                of answer ids (default: the clock)\n"
	"  --drafts N:SHARE        speculative decoding: N tokens are drafted with each, SHARE of them accepted;\n"
	"                          a step that only decodes takes 1 / (1 + N * SHARE) of its time\n"
	"  --drift SHARE           of prompts whose answers differ from those of workers without it\n"
	"\n"
	"Answers\n"
	"  --request-id-headers          repeat or make x-request-id, as vLLM's flag does\n"
	"  --prompt-tokens-details on|off  report cached tokens in usage (default on; vLLM's default "
	"is off)\n"
	"  --enable-scale-out            answer /v1/[chat/]completions/render with token ids, as "
	"vLLM's\n"
	"                                flag does; else 403\n"
	"  --keepalive-s X               close idle connections after X seconds (default 5; 0 "
	"never)\n"
	"  --max-body SIZE               longest request body (default 1GiB)\n"
	"\n"
	"KV cache events, as vLLM publishes them (endpoints and their defaults are vLLM's)\n"
	"  --kv-events-config JSON       {\"enable_kv_cache_events\":true,\"endpoint\":"
	"\"tcp://*:5557\",\n"
	"                                \"replay_endpoint\":\"tcp://*:5558\",\"buffer_steps\":"
	"10000,\n"
	"                                \"hwm\":100000,\"topic\":\"\"}; worker I is at port + I, "
	"port 0\n"
	"                                takes free ones (see GET /kv_event_sources), * is "
	"--host,\n"
	"                                and {port} in the topic the worker's HTTP port\n"
	"  --kv-events-encoding E        maps (vLLM 0.24 and later; default) or arrays\n"
	"  --kv-events-hash H            int (default) or bytes, 32 of them\n"
	"  --kv-events-replay R          new (default) or old, the replies of vLLM before 0.25\n"
	"\n"
	"Tiers below the device: libkvtier in each worker, as in a real one\n"
	"  --l1 SIZE                     CPU memory of each worker, such as 20GB; 64GiB (the "
	"default)\n"
	"  --nvme FOLDER:SIZE            files of each worker, in FOLDER/worker-I; they outlive "
	"it\n"
	"  --l2 URL                      shared by workers: redis://HOST:PORT or whatever l2.url "
	"takes,\n"
	"                                sagemaker-hyperpod://HOST:PORT for a daemon such as "
	"kvtierd\n"
	"  --l2-segment NAME             of the daemon's shared memory (default shared_memory)\n"
	"  --tier-config FILE|YAML       any of libkvtier's settings "
	"(cache/options/REFERENCE.md)\n"
	"  --kv-bytes-per-token SIZE     of the model (default: the profile's)\n"
	"  --shrink N                    payloads and capacities are 1/N of what is said (default "
	"1024;\n"
	"                                1: in full). Sizes above are always said in full\n"
	"  --fetch-or-recompute on|off   compute what would take longer to fetch (default on)\n"
	"  --tier-timing T               modelled: by --list-links; measured: what it really "
	"takes, "
	"with\n"
	"                                --shrink 1 --speed 1 only; auto (default): measured "
	"there\n"
	"  --link NAME                   a way of --list-links in place of its kind's default, or\n"
	"                                gpu=, nvme= or l2= and bytes a second (repeatable)\n"
	"  One of --l1, --nvme, --l2 and --tier-config switches tiers on. An answer that is not a "
	"stream\n"
	"  then says where its prompt was: x-sim-hits: gpu=0 l1=512 nvme=0 l2=256 (tokens).\n"
	"\n"
	"Fragments: cached text that is not a prefix (messages, and what lies between separators)\n"
	"  --fragments SHARE             reuse it, and compute this share of its tokens again, 0 to 1\n"
	"  --fragments-separator TEXT    one token, and a cut (default \" # # \"); \"\": none\n"
	"  --fragments-min N             tokens; what is shorter is computed (default 256)\n"
	"  --fragments-memory N          tokens that memory holds (default 524288)\n"
	"  --fragments-disk N            tokens that a disk holds (default 0: there is none)\n"
	"  --fragments-rotate N          bytes of keys moved to their place a second (default 8e9)\n"
	"  --fragments-layers X          of all layers, those on which all tokens are computed to\n"
	"                                choose the share (default 0.03125: 1 of 32)\n"
	"  Loading takes what --link gpu and nvme say for --kv-bytes-per-token. A request with\n"
	"  \"kv_transfer_params\": {\"kvtier.fragments\": false} takes none.\n"
	"\n"
	"Prefill and decode on different workers, as vLLM's NixlConnector does it by pull\n"
	"  --nixl LIST                   take part, in either role; not with tiers. bandwidth=BYTES a second\n"
	"                                (10e9), latency=S before the first (0.005), lease=S for which KV is\n"
	"                                held (30): a later pull gets a wrong answer, as from freed blocks\n"
	"\n"
	"LMCache: report the tiers to a controller; without tiers above, a simulated CPU tier\n"
	"  --lmcache-controller pull=HOST:PORT,reply=HOST:PORT\n"
	"  --lmcache-version V           0.5 (default), 0.4 or 0.3\n"
	"  --lmcache-instance NAME       instance id (default kvsim); of several workers NAME_I\n"
	"  --lmcache-chunk-size N        tokens (default 256)\n"
	"  --lmcache-hash NAME           builtin (default), sha256_cbor, sha256, xxhash_cbor, "
	"xxhash\n"
	"  --lmcache-seed TEXT           PYTHONHASHSEED (default 0)\n"
	"  --lmcache-cpu-tokens N        what the CPU tier holds (default 262144)\n"
	"  --lmcache-load-ns NS          simulated time to load a token from it (default 2000)\n"
	"  --lmcache-heartbeat-s X       between heartbeats, if the controller wants them (default "
	"1; 0: none)\n"
	"  --lmcache-timeout-s X         a registration that is not answered for so long ends it "
	"all\n"
	"                                (default 30)\n"
	"  --lmcache-worker-port P       of the first worker's command socket (default 0: free "
	"ones)\n"
	"  --lmcache-sync-batch N        keys in a message of a full sync (default 2000)\n"
	"\n"
	"Backends for measuring proxies (POSTs only; their bodies are read and thrown away)\n"
	"  --fixed-response SIZE         every POST is answered at once with a fixed body of that "
	"size\n"
	"  --fixed-stream N:MS:BYTES     every POST is answered with N events of BYTES bytes, one "
	"per\n"
	"                                MS milliseconds: data: "
	"{\"sim_ns\":T,\"seq\":I,\"pad\":\"...\"}\n"
	"                                where T is CLOCK_MONOTONIC in ns just before the write\n"
	"\n"
	"Tokens: runs of up to four ASCII characters, or one other character; each message starts "
	"a new token.\n"
	"Answers are made of them, the same for the same prompt, with exactly max_tokens tokens.\n"
	"\n"
	"For tests, on every worker's port\n"
	"  GET /sim/stats                what the engine did, in simulated time\n"
	"  GET /sim/times                simulated moments of the latest 16384 answers, as CSV\n"
	"  GET /sim/health?status=503    what /health answers from now on\n"
	"  GET /sim/fail?spec=S&count=N  the next N POSTs have the faults S (all of them without "
	"count)\n"
	"  GET /sim/nixl                 what another worker asks that pulls from this one\n"
	"  GET /sim/reset?rank=R         empties the cache of one data-parallel rank; stats and times take\n"
	"                                rank=R, too\n"
	"  GET /sim/restart              as after a restart: new start time, empty cache, counters "
	"at 0\n"
	"  ANY /sim/echo                 the request as it was received, as JSON\n"
	"  ANY /sim/mirror[?chunk=N]     the request's body, byte for byte, in chunks of N\n"
	"\n"
	"Faults, by the request header x-sim-fail (several joined by ;) or /sim/fail\n";

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

/* Loading goes by the tiers' links. */
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

/* What follows from other options; false with a message if they do not fit together. */
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
			.timeout_s = 30,
			.sync_batch = 2000}};
	kvb_tier_options_init(&options->tier);
	kvb_fragments_init(&options->fragments);
	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (option == OPT_HELP || option == 'h') {
			fputs(help_text, stdout);
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
