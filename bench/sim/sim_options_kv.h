/*
 * sim_options_kv.h - options for how a worker reports its caches: vLLM's KV events, LMCache's
 * controller.
 */
#ifndef KVB_SIM_OPTIONS_KV_H
#define KVB_SIM_OPTIONS_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/lmcache_hash.h"
#include "bench/sim/sim_kv_events.h"

#define KVB_ADDRESS_MAX 240 /* with the terminating 0 */

/* Members of vLLM's --kv-events-config, and the form of the messages. */
struct kvb_events_options {
	bool on;
	char endpoint[KVB_ADDRESS_MAX], replay_endpoint[KVB_ADDRESS_MAX]; /* replay "": none */
	char topic[KVB_ADDRESS_MAX]; /* {port} stands for the worker's HTTP port */
	uint32_t buffer_steps, max_queue_size;
	int hwm;
	struct kvb_kv_style style;
	bool old_replay; /* as before 0.25: replies have no topic */
};

/* How KV gets from the worker that prefills to the one that decodes: vLLM's connectors. */
enum kvb_transfer {
	KVB_TRANSFER_NIXL,     /* the decoding worker pulls what the prefilling one's answer names */
	KVB_TRANSFER_PUSH,     /* NixlPushConnector: both are asked at once, by one request id */
	KVB_TRANSFER_MOONCAKE, /* both are asked at once, by a transfer_id */
	KVB_TRANSFER_P2P,      /* OffloadingConnector: by a kv_request_id */
	KVB_TRANSFER_SHARED,   /* blocks lie in a folder, by their content */
	KVB_TRANSFER_SIDECAR,  /* as nixl; the decoding worker asks the other one by itself */
};

/* Transfers of KV between workers. */
struct kvb_nixl_options {
	bool on;
	enum kvb_transfer kind;
	const char *folder; /* shared */
	double bandwidth; /* bytes a second */
	double lease_s;   /* simulated */
	double latency_s; /* simulated time before the first byte */
};

enum kvb_lmcache_version { KVB_LMCACHE_03, KVB_LMCACHE_04, KVB_LMCACHE_05 };

struct kvb_lmcache_options {
	bool on;
	char pull[KVB_ADDRESS_MAX], reply[KVB_ADDRESS_MAX]; /* HOST:PORT */
	char coordinator[KVB_ADDRESS_MAX]; /* HOST:PORT, in place of a controller; "": none */
	bool engine_driven;                /* transfers: reports have no token ids */
	double flush_s;                    /* between reports to a coordinator */
	enum kvb_lmcache_version version;
	const char *instance; /* name of the instance; several workers append their numbers */
	struct kvw_lmcache_recipe recipe;
	const char *hash; /* its name */
	uint32_t cpu_tokens;  /* tokens of the CPU tier */
	int64_t load_ns;      /* simulated time to load a token */
	double heartbeat_s;   /* 0: none */
	double timeout_s;     /* longest time to wait for the answer to a registration */
	uint16_t worker_port; /* port for commands of worker 0; 0: free ones */
	uint32_t sync_batch;  /* keys in one message of a full sync */
};

/* Each parses a text. If it is wrong, writes a message to standard error and returns false. */
bool kvb_nixl_parse(const char *text, struct kvb_nixl_options *options);
bool kvb_transfer_parse(const char *text, struct kvb_nixl_options *options);
bool kvb_events_parse(const char *json, struct kvb_events_options *options);
bool kvb_lmcache_parse_controller(const char *text, struct kvb_lmcache_options *options);
bool kvb_lmcache_parse_coordinator(const char *text, struct kvb_lmcache_options *options);
bool kvb_lmcache_parse_version(const char *text, struct kvb_lmcache_options *options);
bool kvb_lmcache_parse_hash(const char *text, struct kvb_lmcache_options *options);
/* Sets members that follow from several options. */
bool kvb_lmcache_complete(struct kvb_lmcache_options *options);

#endif
