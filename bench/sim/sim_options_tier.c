/*
 * sim_options_tier.c - from the command line to a configuration of libkvtier.
 *
 * The short options are written as the YAML that they stand for and read by libkvtier itself, so that
 * they take what it takes and complain as it does.
 *
 * Shrinking. Payloads are the model's bytes divided by the factor. Capacities are turned into
 * numbers of chunks first, and those into the room that so many shrunk chunks take with libkvtier's
 * rounding (64 KiB in memory, 64 KiB and a header on disk), which is little next to a full chunk but
 * much next to a shrunk one. Bounds on bytes under way are divided, down to what libkvtier needs to
 * work.
 *
 * Speed. Times are simulated for the library, whose clock is the simulation's. What other processes
 * count by a clock of their own (Redis' expiry), and what protects against a machine that hangs (the
 * deadlines of L2), is turned into the same time on the wall.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/sim/sim_options.h"
#include "bench/sim/sim_size.h"

#define FILE_MOST     (1u << 20)
#define L1_DEFAULT    (UINT64_C(64) << 30) /* least payload of a shrunk chunk */
#define PAYLOAD_LEAST 256u
#define ARENA_UNIT    65536u /* unit of libkvtier's memory */
#define DISK_UNIT     65536u /* unit of libkvtier's files */
#define DISK_HEADER   4096u  /* most bytes of a chunk's header in a file */
#define L1_LEAST      (UINT64_C(1) << 20)
#define NVME_LEAST    (UINT64_C(16) << 20)
#define BOUND_LEAST   (UINT64_C(1) << 20)
#define PART_LEAST    65536u
#define ENTRIES_LEAST 4096u /* of libkvtier */
#define ENTRIES_MOST  1000000000u

static bool complain(const char *option, const char *text)
{
	fprintf(stderr, "kvsim: %s: %s\n", option, text);
	return false;
}

void kvb_tier_options_init(struct kvb_tier_options *o)
{
	*o = (struct kvb_tier_options){.recompute = true};
	kvt_config_init(&o->config, sizeof(o->config));
}

void kvb_tier_options_finish(struct kvb_tier_options *o)
{
	kvt_config_finish(&o->config);
}

static bool read_yaml(const char *option, const char *yaml, size_t len, struct kvb_tier_options *o)
{
	char *report = NULL;
	enum kvt_status status = kvt_config_read(&o->config, option, yaml, len, &report);

	if (status != KVT_OK)
		complain(option, report != NULL ? report : kvt_status_text(status));
	kvt_text_free(report);
	o->on = true;
	return status == KVT_OK;
}

static bool read_file(const char *option, const char *path, struct kvb_tier_options *o)
{
	FILE *file = fopen(path, "r");
	char *text = malloc(FILE_MOST);
	size_t len = 0;
	bool good = false;

	if (file != NULL && text != NULL) {
		len = fread(text, 1, FILE_MOST, file);
		good = ferror(file) == 0 && len < FILE_MOST;
	}
	if (!good)
		complain(option, "the file cannot be read");
	else
		good = read_yaml(path, text, len, o);
	if (file != NULL)
		fclose(file);
	free(text);
	return good;
}

bool kvb_tier_parse_config(const char *text, struct kvb_tier_options *o)
{
	static const char option[] = "--tier-config";

	if (access(text, F_OK) == 0)
		return read_file(option, text, o);
	if (strstr(text, ": ") == NULL && strchr(text, '\n') == NULL)
		return complain(
			option, "neither a file nor YAML such as \"l1: {capacity: 64GiB}\"");
	return read_yaml(option, text, strlen(text), o);
}

/* Reads the one or two values that describe a tier's room; texts stand in double quotes. */
static bool read_values(const char *option, const char *format, const char *first,
	const char *second, struct kvb_tier_options *o)
{
	char yaml[1024];

	if (strpbrk(first, "\"\\\n{},") != NULL || strpbrk(second, "\"\\\n{},") != NULL)
		return complain(option, "\" \\ { } and commas are for --tier-config");
	if (strlen(first) + strlen(second) > sizeof(yaml) - 64)
		return complain(option, "too long");
	snprintf(yaml, sizeof(yaml), format, first, second);
	return read_yaml(option, yaml, strlen(yaml), o);
}

/* Turns a size into the form that libkvtier reads: bytes, or "auto". */
static bool plain_size(const char *option, const char *text, char plain[24])
{
	uint64_t bytes;

	if (kvb_parse_size(text, &bytes))
		snprintf(plain, 24, "%llu", (unsigned long long)bytes);
	else if (strcmp(text, "auto") == 0)
		strcpy(plain, text);
	else
		return complain(option, "expected " KVB_SIZE_EXPECTED);
	return true;
}

bool kvb_tier_parse_l1(const char *text, struct kvb_tier_options *o)
{
	char plain[24];

	return plain_size("--l1", text, plain) &&
	       read_values("--l1", "l1: {capacity: %s%s}", plain, "", o);
}

bool kvb_tier_parse_nvme(const char *text, struct kvb_tier_options *o)
{
	const char *colon = strrchr(text, ':');
	char path[512], plain[24];

	if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof(path))
		return complain("--nvme", "expected FOLDER:SIZE, such as /var/tmp/kv:1TiB");
	snprintf(path, sizeof(path), "%.*s", (int)(colon - text), text);
	return plain_size("--nvme", colon + 1, plain) &&
	       read_values("--nvme", "nvme: {path: \"%s\", capacity: %s}", path, plain, o);
}

bool kvb_tier_parse_l2(const char *text, struct kvb_tier_options *o)
{
	return read_values("--l2", "l2: {url: \"%s%s\"}", text, "", o);
}

bool kvb_tier_parse_segment(const char *text, struct kvb_tier_options *o)
{
	return read_values("--l2-segment", "l2: {segment: \"%s%s\"}", text, "", o);
}

bool kvb_tier_parse_timing(const char *text, struct kvb_tier_options *o)
{
	static const char *const names[] = {"auto", "modelled", "measured"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		o->timing = (enum kvb_tier_timing)i;
		return true;
	}
	return complain("--tier-timing", "expected auto, modelled or measured");
}

bool kvb_tier_parse_link(const char *text, struct kvb_tier_options *o)
{
	const struct kvb_link *link = kvb_link_find(text);
	struct kvb_link own;

	if (link == NULL && kvb_link_parse_own(text, &own)) {
		o->own_links[own.kind] = own;
		link = &o->own_links[own.kind];
	}
	if (link == NULL)
		return complain("--link",
			"expected a name of --list-links, or gpu=, nvme= or l2= and "
			"bytes a second");
	o->links[link->kind] = link;
	return true;
}

/* --- values that follow from others
 * ------------------------------------------------------------- */

static bool is_daemon(const char *url)
{
	return strncmp(url, "sagemaker-hyperpod:", 19) == 0 || strncmp(url, "kvtierd:", 8) == 0;
}

static bool has(const char *text)
{
	return text != NULL && text[0] != '\0';
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static uint64_t at_least(uint64_t value, uint64_t least)
{
	return value > least ? value : least;
}

/* A profile without simulated time has none for transfers either. */
static const struct kvb_link *default_link(
	const struct kvb_options *options, enum kvb_link_kind kind)
{
	if (options->profile->base_ms <= 0 && options->profile->prefill_tps <= 0)
		return kvb_link_instant(kind);
	if (kind == KVB_LINK_L2 && is_daemon(options->tier.config.l2_url))
		return kvb_link_find("shm");
	return kvb_link_default(kind);
}

static bool choose_timing(struct kvb_options *options)
{
	struct kvb_tier_options *o = &options->tier;
	bool full = o->shrink == 1 && options->speed == 1;

	if (o->timing == KVB_TIMING_MEASURED && !full)
		return complain("--tier-timing", "measured needs --shrink 1 and --speed 1");
	o->modelled = o->timing == KVB_TIMING_MODELLED || !full;
	for (int kind = 0; kind < KVB_LINK_KINDS; kind++)
		if (o->links[kind] == NULL)
			o->links[kind] = default_link(options, (enum kvb_link_kind)kind);
	return true;
}

/* Sets the number of chunks: libkvtier's index has room for chunks of average size, and of
 * shrunk ones far more fit. */
static void make_entries(uint64_t chunks, uint32_t *max_chunks)
{
	if (*max_chunks == 0 && chunks > ENTRIES_LEAST)
		*max_chunks = chunks < ENTRIES_MOST ? (uint32_t)chunks : ENTRIES_MOST;
}

static bool choose_sizes(struct kvb_options *options)
{
	struct kvb_tier_options *o = &options->tier;
	const struct kvt_config *c = &o->config;
	uint64_t l1 = c->l1_capacity, in_memory, on_disk;

	if (o->kv_bytes == 0)
		o->kv_bytes = options->profile->kv_bytes;
	o->chunk_tokens = c->tokens_per_chunk / options->block_size * options->block_size;
	if (o->chunk_tokens == 0)
		o->chunk_tokens = options->block_size;
	o->chunk_bytes = (uint64_t)o->chunk_tokens * o->kv_bytes;
	o->payload_bytes = round_up(at_least(o->chunk_bytes / o->shrink, PAYLOAD_LEAST), 8);
	if (l1 == 0 && o->shrink == 1 && options->workers > 1)
		return complain(
			"--l1", "a size is needed: several workers share this memory in full");
	if (l1 == 0 && o->shrink > 1)
		l1 = L1_DEFAULT;
	if (has(c->nvme_path) && c->nvme_capacity == 0 && o->shrink > 1)
		return complain("--nvme", "a size is needed");
	in_memory = round_up(o->payload_bytes, ARENA_UNIT);
	on_disk = round_up(o->payload_bytes + DISK_HEADER, DISK_UNIT);
	o->l1_bytes = l1;
	o->nvme_bytes = c->nvme_capacity;
	if (o->shrink > 1) {
		o->l1_bytes = at_least(l1 / o->chunk_bytes * in_memory, L1_LEAST);
		o->nvme_bytes = at_least(c->nvme_capacity / o->chunk_bytes * on_disk, NVME_LEAST);
		make_entries(l1 / o->chunk_bytes, &o->config.l1_max_chunks);
		make_entries(c->nvme_capacity / o->chunk_bytes, &o->config.nvme_max_chunks);
	}
	return true;
}

bool kvb_tier_complete(struct kvb_options *options)
{
	struct kvb_tier_options *o = &options->tier;

	if (!o->on)
		return o->shrink == 0 ||
		       complain("--shrink", "there are no tiers: --l1, --nvme or --l2");
	if (o->shrink == 0)
		o->shrink = KVB_SHRINK_DEFAULT;
	if (is_daemon(o->config.l2_url) && options->speed < 1)
		return complain("--speed", "a daemon's leases end by its own clock: at least 1");
	if (has(o->config.events_publish))
		fprintf(stderr,
			"kvsim: events.publish is ignored: --kv-events-config publishes the "
			"events of all tiers\n");
	if (!choose_sizes(options) || !choose_timing(options))
		return false;
	if (options->lmcache.coordinator[0] != '\0')
		return complain("--lmcache-coordinator", "not with tiers");
	return !options->lmcache.on || options->lmcache.recipe.chunk_size == o->chunk_tokens ||
	       complain("--lmcache-chunk-size", "must be the tiers' control.tokens_per_chunk");
}

static void print_way(const char *what, const struct kvb_link *link)
{
	if (link == kvb_link_instant(link->kind)) {
		fprintf(stderr, "kvsim:   %-16s no time, as the profile\n", what);
		return;
	}
	fprintf(stderr, "kvsim:   %-16s %.2f GB/s, %.0f us (%s)\n", what, link->bytes_per_s / 1e9,
		(double)link->latency_ns / 1e3, link->name);
}

void kvb_tier_print(const struct kvb_options *options)
{
	const struct kvb_tier_options *o = &options->tier;

	fprintf(stderr,
		"kvsim: tiers of each worker by libkvtier %s, chunks of %u tokens, %llu bytes "
		"each\n",
		kvt_version(), o->chunk_tokens, (unsigned long long)o->chunk_bytes);
	if (o->shrink == 1)
		fprintf(stderr, "kvsim: in full: --shrink 1\n");
	else
		fprintf(stderr,
			"kvsim: payloads and capacities are 1/%u of that: %llu bytes a chunk, L1 "
			"of "
			"%.0f MiB a worker\n",
			o->shrink, (unsigned long long)o->payload_bytes,
			(double)o->l1_bytes / 1048576);
	if (!o->modelled) {
		fprintf(stderr, "kvsim: transfers take what they really take: measured\n");
		return;
	}
	fprintf(stderr, "kvsim: transfers are modelled (--list-links has the sources):\n");
	print_way("L1 to GPU", o->links[KVB_LINK_GPU]);
	if (has(o->config.nvme_path))
		print_way("NVMe to L1", o->links[KVB_LINK_NVME]);
	if (has(o->config.l2_url))
		print_way("L2 to L1", o->links[KVB_LINK_L2]);
	fprintf(stderr, "kvsim: stores take no simulated time\n");
}

/* --- one worker ------------------------------------------------------------------------------- */

/* Returns a hash of everything that decides a chunk's bytes. */
static struct kvt_fingerprint fingerprint_of(const struct kvb_options *options)
{
	const struct kvb_tier_options *o = &options->tier;
	uint32_t words[64] = {1, o->kv_bytes, o->shrink, o->chunk_tokens, options->block_size};
	struct kvt_fingerprint out;

	strncpy((char *)&words[8], options->model, sizeof(words) - 9 * sizeof(words[0]));
	kvt_chain_id(NULL, words, sizeof(words) / sizeof(words[0]), out.bytes);
	return out;
}

static uint64_t shrunk(uint64_t bytes, uint32_t shrink, uint64_t least)
{
	return bytes == 0 || shrink == 1 ? bytes : at_least(bytes / shrink, least);
}

/* A bound on bytes under way. Where stores and loads take no real part in simulated time, what does not
 * fit between two steps on a slow machine must not be lost: then it is half of L1 at least. */
static uint64_t bound(const struct kvb_tier_options *o, uint64_t bytes)
{
	uint64_t out = bytes / o->chunk_bytes * round_up(o->payload_bytes, ARENA_UNIT);

	if (o->shrink == 1 && !o->modelled)
		return bytes;
	return at_least(at_least(out, o->modelled ? o->l1_bytes / 2 : 0), BOUND_LEAST);
}

/* Sets LMCache's controller, to which the library itself reports. */
static void set_controller(const struct kvb_options *options, uint32_t index,
	struct kvb_tier_texts *texts, struct kvt_config *out)
{
	const struct kvb_lmcache_options *l = &options->lmcache;

	if (!l->on)
		return;
	snprintf(texts->pull, sizeof(texts->pull), "tcp://%s", l->pull);
	snprintf(texts->reply, sizeof(texts->reply), "tcp://%s", l->reply);
	snprintf(texts->instance, sizeof(texts->instance), options->workers > 1 ? "%s_%u" : "%s",
		l->instance, index);
	snprintf(texts->ports, sizeof(texts->ports), "%u", (uint16_t)(l->worker_port + index));
	out->controller_pull = texts->pull;
	out->controller_reply = l->version == KVB_LMCACHE_03 ? "" : texts->reply;
	out->controller_instance = texts->instance;
	out->controller_ip = options->host;
	out->controller_ports = l->worker_port == 0 ? "" : texts->ports;
	out->controller_heartbeat_ns =
		(uint64_t)(l->heartbeat_s * 1e9 * (options->speed > 1 ? options->speed : 1));
	out->controller_heartbeat_delay_ns = out->controller_heartbeat_ns;
	out->controller_answer_ns =
		(uint64_t)(l->timeout_s * 1e9 * (options->speed > 1 ? options->speed : 1));
	out->controller_sync_batch = l->sync_batch;
	out->controller_chunk_size = options->tier.chunk_tokens;
	out->controller_hash = l->hash;
	out->controller_hash_seed = l->recipe.seed;
}

static void set_bounds(const struct kvb_tier_options *o, struct kvt_config *out)
{
	out->l1_scrub_rate = shrunk(out->l1_scrub_rate, o->shrink, PART_LEAST);
	if (out->store_inflight == 0) /* libkvtier's default, computed from full sizes */
		out->store_inflight =
			o->config.l1_capacity * (has(o->config.nvme_path) + has(o->config.l2_url));
	out->store_inflight = bound(o, out->store_inflight);
	out->load_inflight = bound(o, out->load_inflight);
	out->l2_inflight = bound(o, out->l2_inflight);
	out->l2_part_bytes = shrunk(out->l2_part_bytes, o->shrink, PART_LEAST);
	out->tenant_l1_bytes = shrunk(out->tenant_l1_bytes, o->shrink, ARENA_UNIT);
	out->tenant_l2_bytes = shrunk(out->tenant_l2_bytes, o->shrink, PART_LEAST);
	out->tenant_nvme_bytes = shrunk(out->tenant_nvme_bytes, o->shrink, ARENA_UNIT);
}

void kvb_tier_config(const struct kvb_options *options, uint32_t index,
	struct kvb_tier_texts *texts, struct kvt_config *out)
{
	const struct kvb_tier_options *o = &options->tier;
	double wall = options->speed > 1 ? options->speed : 1;

	*out = o->config;
	out->texts = NULL; /* stay the options' */
	out->fingerprint = fingerprint_of(options);
	out->threads = KVT_THREADS_OWN;
	if (has(out->nvme_path)) {
		snprintf(texts->nvme_path, sizeof(texts->nvme_path), "%s/worker-%u", out->nvme_path,
			index);
		out->nvme_path = texts->nvme_path;
	}
	out->l1_capacity = o->l1_bytes;
	out->nvme_capacity = o->nvme_bytes;
	out->tokens_per_chunk = o->chunk_tokens;
	/* kvsim itself decides, by its model */
	out->fetch_when_slower |= !o->recompute || o->modelled;
	out->events_publish = out->events_replay = "";
	set_bounds(o, out);
	out->l2_ttl_ns = (uint64_t)((double)out->l2_ttl_ns / options->speed);
	out->l2_connect_ns = (uint64_t)((double)out->l2_connect_ns * wall);
	out->l2_deadline_ns = (uint64_t)((double)out->l2_deadline_ns * wall);
	out->nvme_sync_ns = (uint64_t)((double)out->nvme_sync_ns * wall);
	set_controller(options, index, texts, out);
}
