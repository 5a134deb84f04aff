/*
 * worker.h - one vLLM server, or a data-parallel rank of one (ranks.h): its configuration and its
 * state.
 *
 * A worker lies in a slot of the fleet. The slot's memory stays until the fleet ends; the server in
 * it may change: the slot of a gone worker is reused for another worker, once all holders have
 * released it.
 *
 *	FREE --kvw_fleet_add--> LIVE --kvw_fleet_remove--> GONE --all have let go--> FREE
 *
 * While it is LIVE or GONE its texts stay unchanged. They may be read by:
 *  - the control thread, always;
 *  - an event loop, in its turn, of a worker that is LIVE, or that one of its requests or
 *    connections refers to (kvw_links_hold): a worker gets FREE only after each loop has said that
 *    none does;
 *  - other threads, of a worker that they hold (kvw_worker_hold).
 */
#ifndef KVW_WORKER_H
#define KVW_WORKER_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "config/config.h"
#include "fleet/ejection.h"
#include "fleet/ranks.h"
#include "fleet/stall.h"
#include "kvway/load.h"

enum kvw_health {
	KVW_HEALTH_UNKNOWN, /* not probed yet; usable */
	KVW_HEALTH_UP,
	KVW_HEALTH_DOWN, /* unusable until a probe succeeds */
};

enum kvw_worker_life { KVW_WORKER_FREE, KVW_WORKER_LIVE, KVW_WORKER_GONE };

/* Reasons against new requests besides health, answers and progress. Bits. */
enum kvw_barred {
	KVW_BARRED_DRAINING = 1,   /* the worker will be removed, or rests */
	KVW_BARRED_ASLEEP = 2,     /* vLLM's sleep mode */
	KVW_BARRED_NO_ADDRESS = 4, /* its name does not resolve */
};

#define KVW_MODELS_UNREADABLE 1 /* the answer was not a list, or there was no answer */

#define KVW_KV_SOURCE_ROOM   320
#define KVW_PROBE_FAULT_ROOM 160

#define KVW_ADDRESSES_MAX 16 /* most addresses of one worker's name */

/* All addresses that a worker's name resolves to. */
struct kvw_addresses {
	struct sockaddr_storage items[KVW_ADDRESSES_MAX];
	size_t count;
	size_t first; /* index of the address to which the last connection was made */
};

struct kvw_tls; /* tls.h */

struct kvw_worker {
	struct kvw_load load;  /* first, since it has its own cache lines */
	uint32_t id;           /* its slot */

	/* Unchanged while the worker is LIVE or GONE, except config.models and config.weight, which
	 * only the control thread reads. */
	/* owned; its URL has no trailing slash */
	struct kvw_worker_config config;
	const char *url;       /* scheme://host:port[/prefix][@rank]; belongs to `config` */
	const char *endpoint;  /* the URL without a rank; equal to url, or owned */
	/* Data-parallel rank: its index in the API server; KVW_RANK_NONE: the worker is not a
	 * rank. */
	int rank;
	/* For a rank above 0, which holds it, rank 0 of its endpoint; otherwise the worker itself.
	 * The lead's slot has the connections, probes and list of models of all ranks. */
	struct kvw_worker *lead;
	const char *api_key;   /* "" if none; config's */
	uint64_t key;          /* hash of url */
	uint64_t group_key, url_key; /* kvw_group_key of config.group, and of `endpoint` */
	bool tls;              /* https */
	/* TLS context that verifies its certificate (https); owned by the fleet. NULL: the fleet is
	 * offline. */
	struct kvw_tls *trust;
	/* name that its certificate must have; belongs to config, or is `host` */
	const char *tls_name;
	uint16_t port;
	/* The host in DNS queries, perhaps with a final dot; owned. */
	char *dns_name;
	char *host;            /* name or address without brackets; owned */
	char *authority;       /* host:port as in the Host field; owned */
	char *path_prefix;     /* "" or "/prefix"; owned */
	uint32_t first_generation;
	/* How many workers this slot has had; 0: none yet. A loop that has released the worker may
	 * still read this. */
	_Atomic uint32_t use;

	/* A rank's number in its deployment, as in the label `engine` of metrics and in KV
	 * events. */
	_Atomic uint32_t global_rank;
	/* Only a lead's are used: followers: number of LIVE ranks above 0. Then which number
	 * X-data-parallel-rank must have there (enum kvw_rank_index), and whether the server has
	 * answered well to it. */
	_Atomic uint32_t followers;
	_Atomic uint8_t rank_index;        /* enum kvw_rank_index */
	_Atomic bool rank_proven;
	_Atomic int64_t rank_given_up_ns;  /* when rank_index became KVW_RANK_UNSENT */

	_Atomic uint8_t life;              /* enum kvw_worker_life; written by the control thread */
	_Atomic uint8_t barred;            /* bits of enum kvw_barred */
	/* The worker is leaving and another one has its URL, which metrics show instead. */
	_Atomic bool hidden;
	/* number of kvw_worker_hold, and a bit: further holds are allowed */
	_Atomic uint32_t holds;
	/* GONE: number of event loops that have not released the worker; set when no view or table
	 * that loops will read lists it. */
	_Atomic uint32_t loops_left;
	pthread_mutex_t address_lock;      /* guards the next two */
	struct kvw_addresses addresses;
	/* How others get its KV, as members of `kv_transfer_params`; "": not known. */
	char kv_source[KVW_KV_SOURCE_ROOM];
	_Atomic float weight;              /* multiple of an even share of the load; config's */
	_Atomic uint32_t address_version;  /* grows with each new list of addresses */

	_Atomic uint8_t health;            /* enum kvw_health */
	/* Its last probe timed out after the worker had accepted the connection. */
	_Atomic bool late;
	_Atomic bool models_given; /* the configuration lists its models, so that it is not asked */
	_Atomic bool models_known;         /* its models were configured, or read at least once */
	struct kvw_ejection ejection;      /* state of its ejection, by its answers */
	struct kvw_stall stall;            /* state of its stall, by missing answers */
	/* Metrics requested before this time do not show whether it sleeps; INT64_MAX: a request
	 * that puts it to sleep is under way. */
	_Atomic int64_t sleep_said_ns;
	/* Grows when its cache is known to be lost, and when its slot gets another worker. */
	_Atomic uint32_t generation;
	_Atomic uint32_t block_size;       /* 0: unknown */
	_Atomic bool blends; /* its metrics say that it reuses texts that are no prefix */
	_Atomic uint64_t capacity_tokens;  /* usable KV tokens; 0: unknown */
	/* process_start_time_seconds, from its last metrics, or from a former process of kvway; 0:
	 * unknown. Used only by the control thread. */
	_Atomic double started_s;
	_Atomic uint64_t probes_failed;    /* since start */
	/* Why its last probe failed; "": it succeeded, or there was none. Used only by the control
	 * thread. */
	char probe_fault[KVW_PROBE_FAULT_ROOM];
	/* 1 + thousandths of its KV memory that running requests use, by its metrics; 0:
	 * unknown. */
	_Atomic uint16_t kv_used;
	/* Tokens of speculative decoding that the worker's metrics have shown since kvway reads
	 * them. */
	_Atomic uint64_t draft_tokens;
	_Atomic uint64_t draft_accepted;   /* of these */
	/* transfers: requests since it joined that another worker prefilled for it and that have a
	 * first token; recomputed: those of them that it computed itself all the same, by its
	 * metrics. */
	_Atomic uint64_t transfers, recomputed;
	/* When its slow start began; 0: it may have a full share. */
	_Atomic int64_t slow_since_ns;
	_Atomic int64_t models_read_ns;    /* when its list of models was last read; 0: never */
	_Atomic bool models_wanted;        /* a loop asks for a new reading of the list */
	/* When the present list was requested; 0: never. */
	_Atomic int64_t models_asked_ns;
	/* When an answer showed that the list has changed; 0: never. */
	_Atomic int64_t models_changed_ns;
	/* Why its list cannot be read: an HTTP status, or KVW_MODELS_UNREADABLE; 0: it can, or was
	 * not requested. */
	_Atomic uint16_t models_fault;
	/* Its last answer allowed web pages of all origins. */
	_Atomic bool any_origin;
	/* The smallest max_model_len in its list, in tokens; 0: unknown. */
	_Atomic uint32_t max_model_len;
	_Atomic uint64_t *changes;         /* the fleet's */
};

/* --- life: the control thread, by fleet.h --- */

/* Allocates the slot `id`, with a FREE worker. The caller initializes its load. */
enum kvw_err kvw_worker_create(
	uint32_t id, _Atomic uint64_t *changes, struct kvw_worker **out) KVW_MUST_CHECK;
void kvw_worker_destroy(struct kvw_worker *worker); /* NULL is allowed */

/* Fills a FREE worker, which stays FREE until the caller publishes it. A numeric host becomes its
 * address at once. KVW_EINVAL: no URL of a worker. */
enum kvw_err kvw_worker_fill(
	struct kvw_worker *worker, const struct kvw_worker_config *config) KVW_MUST_CHECK;
/* Sets other models (none: the worker is asked for them) and another weight. */
enum kvw_err kvw_worker_change(
	struct kvw_worker *worker, const struct kvw_worker_config *config) KVW_MUST_CHECK;
/* Makes the worker GONE: no further holds are possible. */
void kvw_worker_close(struct kvw_worker *worker);
/* Returns whether all holders of a GONE worker have released it. */
bool kvw_worker_is_let_go(const struct kvw_worker *worker);
/* Makes the worker FREE: clears all its members but the load, which must be empty. */
void kvw_worker_clear(struct kvw_worker *worker);

/* --- any thread --- */

static inline enum kvw_worker_life kvw_worker_life(const struct kvw_worker *worker)
{
	return (enum kvw_worker_life)atomic_load_explicit(&worker->life, memory_order_acquire);
}

/* Holds a worker. False: it is not LIVE. True: it does not get FREE before kvw_worker_let_go. */
bool kvw_worker_hold(struct kvw_worker *worker) KVW_MUST_CHECK;
void kvw_worker_let_go(struct kvw_worker *worker);

/* Path of the authorities that sign its certificate; "": the authorities that the system trusts. */
static inline const char *kvw_worker_ca_file(
	const struct kvw_worker *worker, const struct kvw_config *config)
{
	const char *own = worker->config.tls_ca_file;

	return own != NULL && own[0] != '\0' ? own : config->upstream_tls_ca_file;
}

/* Returns whether the worker is healthy by its probes, or not probed yet. */
static inline bool kvw_worker_is_up(const struct kvw_worker *worker)
{
	return atomic_load_explicit(&worker->health, memory_order_relaxed) != KVW_HEALTH_DOWN;
}

/* Returns whether the worker's probes have only timed out. It may be too busy to answer them. */
static inline bool kvw_worker_is_late(const struct kvw_worker *worker)
{
	return !kvw_worker_is_up(worker) &&
	       atomic_load_explicit(&worker->late, memory_order_relaxed);
}

static inline bool kvw_worker_is_barred(const struct kvw_worker *worker)
{
	return atomic_load_explicit(&worker->barred, memory_order_relaxed) != 0;
}

/* Returns whether the worker gets no new requests, but can answer. Its stored chunks still
 * exist. */
static inline bool kvw_worker_rests(const struct kvw_worker *worker)
{
	return kvw_worker_is_up(worker) &&
	       atomic_load_explicit(&worker->barred, memory_order_relaxed) == KVW_BARRED_DRAINING;
}

/* Returns whether the engine sleeps: it computes nothing, but its API server answers and can wake
 * it. */
static inline bool kvw_worker_sleeps(const struct kvw_worker *worker)
{
	return kvw_worker_is_up(worker) &&
	       (atomic_load_explicit(&worker->barred, memory_order_relaxed) &
		       (KVW_BARRED_ASLEEP | KVW_BARRED_NO_ADDRESS)) == KVW_BARRED_ASLEEP;
}

/* Like kvw_worker_sleeps, after the request that puts it to sleep has ended: prompts that are not
 * computed by now will not be. */
static inline bool kvw_worker_fell_asleep(const struct kvw_worker *worker)
{
	return kvw_worker_sleeps(worker) &&
	       atomic_load_explicit(&worker->sleep_said_ns, memory_order_relaxed) != INT64_MAX;
}

/* Records that an answer of the worker, at now_ns, shows a changed list of models: kvway reads the
 * list again at once. */
static inline void kvw_worker_models_changed(struct kvw_worker *worker, int64_t now_ns)
{
	atomic_store_explicit(&worker->lead->models_changed_ns, now_ns, memory_order_release);
	atomic_store_explicit(&worker->lead->models_wanted, true, memory_order_release);
}

/* Returns whether the present list was requested before an answer showed a change. */
static inline bool kvw_worker_models_stale(const struct kvw_worker *worker)
{
	const struct kvw_worker *lead = worker->lead;
	int64_t changed_ns = atomic_load_explicit(&lead->models_changed_ns, memory_order_acquire);

	return changed_ns != 0 &&
	       !atomic_load_explicit(&worker->models_given, memory_order_relaxed) &&
	       atomic_load_explicit(&lead->models_asked_ns, memory_order_acquire) <= changed_ns;
}

#define KVW_MODELS_FAULT_ROOM 48
/* Writes why its list cannot be read, such as "status 401". False: it can be read, or was not
 * requested. */
bool kvw_worker_models_fault(const struct kvw_worker *worker, char text[KVW_MODELS_FAULT_ROOM]);

/* How others get its KV (kv_source). A text that is too long counts as "". */
void kvw_worker_set_kv_source(struct kvw_worker *worker, struct kvw_slice text);
void kvw_worker_kv_source(struct kvw_worker *worker, char out[KVW_KV_SOURCE_ROOM]);

/* Returns whether the worker may get requests. */
bool kvw_worker_usable(const struct kvw_worker *worker);
/* "both", "prefill" or "decode". */
const char *kvw_role_name(enum kvw_role role);
/* "up", or the reason why the worker is not usable. */
const char *kvw_worker_state_name(const struct kvw_worker *worker);

/* Returns the worker's nth address (from 0), beginning with the one to which the last connection
 * was made. False: there are no more. */
bool kvw_worker_address(struct kvw_worker *worker, size_t nth, struct sockaddr_storage *out);
/* Like kvw_worker_address, but counted from the result of kvw_worker_first_address, even if another
 * address has worked since. */
bool kvw_worker_address_from(
	struct kvw_worker *worker, size_t first, size_t nth, struct sockaddr_storage *out);
size_t kvw_worker_first_address(struct kvw_worker *worker);
/* Returns whether this is an address of the worker. */
bool kvw_worker_has_address(struct kvw_worker *worker, const struct sockaddr_storage *address);
/* Records that a connection to this address was made. */
void kvw_worker_address_worked(struct kvw_worker *worker, const struct sockaddr_storage *address);
/* Writes the worker's first address as text, without port, or its host if it has no address. */
void kvw_worker_ip(struct kvw_worker *worker, char *text, size_t room);

static inline socklen_t kvw_address_len(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

#endif
