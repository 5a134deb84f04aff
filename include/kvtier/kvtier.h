/*
 * kvtier.h - a tiered cache for the KV blocks of language models, as a C library.
 *
 * A chunk is a run of tokens' keys and values, some KiB to some hundred MiB, named by a 32-byte
 * key. Chunks form chains: a chunk is usable only if all chunks before it in its prompt are stored,
 * too. The library keeps chunks in CPU memory (L1) and on NVMe, moves them between the two, and
 * answers how long a prefix of a chain is stored and how long fetching it would take.
 *
 * Guarantees. A get returns the bytes that were committed under its key, or a miss; never other
 * bytes. Data read from a file is first checked against the key, the fingerprint and a checksum (or
 * an AES-GCM tag). No chunk is visible before its commit. Every call that may wait takes a time
 * limit; after the limit its result is a miss. The library may lose a chunk; the engine computes it
 * again.
 *
 * Threads. Every function may be called from any thread at any time, unless its comment says
 * otherwise; kvt_open is to be called after the process's last fork. In a forked child every
 * function refuses the handle with KVT_EFORK but kvt_close, which then frees nothing that is
 * shared. The caller's callbacks (log, clock, I/O layer) run on the library's threads, without its
 * locks held, and must not call back into the library.
 *
 * Ownership. A call reads the pointers it takes during the call only, unless its comment says
 * "borrowed until". The caller releases each object it gets exactly once, with the function that
 * the comment names.
 *
 * Growth. Structs that a caller fills begin with their own size, set by an init function; new
 * members are only added at the end. Results go to out-parameters, untouched on failure. Times are
 * in nanoseconds, sizes in bytes.
 */
#ifndef KVTIER_H
#define KVTIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_ABI 2

#if defined(__GNUC__)
#define KVT_API        __attribute__((visibility("default")))
#define KVT_MUST_CHECK __attribute__((warn_unused_result))
#else
#define KVT_API
#define KVT_MUST_CHECK
#endif

/* --- results ---------------------------------------------------------------------------------- */

/* Results of calls. Values are part of the ABI. */
enum kvt_status {
	KVT_OK = 0,
	KVT_MISS = 1,       /* not stored, or not available within the time limit */
	KVT_EXISTS = 2,     /* put: the chunk is stored already, nothing to do */
	KVT_FULL = 3,       /* no room, and no chunk that may be evicted */
	KVT_BUSY = 4,       /* the limit of operations under way is reached: try later */
	KVT_EINVAL = 5,     /* an argument is wrong */
	KVT_ENOMEM = 6,     /* an allocation failed */
	KVT_EIO = 7,        /* the operating system refused; the log has the cause */
	KVT_ECORRUPT = 8,   /* a chunk failed its check: dropped, counted; get: a miss */
	KVT_EFORMAT = 9,    /* a store of another or a newer format: left untouched */
	KVT_ELOCKED = 10,   /* another process owns the store; the log has its pid */
	KVT_EFORK = 11,     /* the handle was opened before a fork */
	KVT_ECANCELED = 12, /* the operation was cancelled, or the handle is closing */
	KVT_ENOTSUP = 13,   /* this build or this machine has no support */
};

/* A short text for people, never NULL, for any value. Static. */
KVT_API const char *kvt_status_text(enum kvt_status status);

/* Version of the library, "MAJOR.MINOR.PATCH". Static. */
KVT_API const char *kvt_version(void);

/* --- names ------------------------------------------------------------------------------------ */

#define KVT_KEY_BYTES 32

/* Storage key of a chunk. Compared whole, never in part. */
struct kvt_key {
	uint8_t bytes[KVT_KEY_BYTES];
};

/* Hash of all that determines the meaning of a chunk's bytes: model, weights, layout, dtype,
 * sizes. */
struct kvt_fingerprint {
	uint8_t bytes[32];
};

/* Hash of a cache salt; all zero: the tenant without one. */
struct kvt_tenant {
	uint8_t bytes[16];
};

/* Input of a storage key. */
struct kvt_key_parts {
	uint32_t size; /* sizeof(struct kvt_key_parts) */
	uint32_t rank; /* the parallel rank; 0 if all ranks share the chunk */
	/* The engine's hash of the chunk's last block: salt, LoRA, images inside. */
	const void *chain_id;
	size_t chain_id_bytes; /* 16 to 64; shorter: not cryptographic, refused */
	/* "sha256_cbor", ...: another recipe makes another key. */
	const char *hash_recipe;
	const char *hash_seed;   /* PYTHONHASHSEED or NULL */
	struct kvt_fingerprint fingerprint;
	struct kvt_tenant tenant;
};

/* SHA-256 over the domain "kvtier key 1" and every part with its length; two bytes of the key are
 * the tenant's, by which an erase of the tenant finds the chunk in shared tiers. It does not find
 * keys made otherwise there. KVT_EINVAL. */
KVT_API enum kvt_status kvt_key_make(
	const struct kvt_key_parts *parts, struct kvt_key *out) KVT_MUST_CHECK;

/* Key of a chunk's second object, its ends: the last blocks of each window, which models that mix
 * windows and full attention store apart. SHA-256 over the domain "kvtier ends 1" and the chunk's
 * key. `out` may be `key`. */
KVT_API void kvt_key_ends(const struct kvt_key *key, struct kvt_key *out);

/* Chain id for engines that give none: SHA-256 over the parent's chain id (NULL: first) and the
 * tokens. */
KVT_API void kvt_chain_id(const uint8_t parent[32], const uint32_t *tokens, size_t count,
	uint8_t out[32]);

/* First 16 bytes of SHA-256 over a domain and the salt; len 0 gives the zero tenant. */
KVT_API void kvt_tenant_of(const void *salt, size_t len, struct kvt_tenant *out);

struct kvt_config;

/*
 * Hashes by which an LMCache controller, configured in section `controller`, names a prompt's
 * chunks: a chunk's hash is computed from its tokens (1 to 8192) and the hash of the chunk before,
 * for the first chunk from *state. KVT_MISS: no controller is configured; KVT_ENOTSUP: the hash
 * cannot be computed outside LMCache (`builtin` without a seed). Cost: about a microsecond for 256
 * tokens.
 */
KVT_API enum kvt_status kvt_lmcache_root(
	const struct kvt_config *config, uint64_t *state) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_lmcache_hash(const struct kvt_config *config, uint64_t before,
	const uint32_t *tokens, size_t count, uint64_t *hash) KVT_MUST_CHECK;

/* --- tiers ------------------------------------------------------------------------------------ */

enum kvt_tier_id {
	KVT_TIER_L1 = 0,   /* CPU memory */
	KVT_TIER_NVME = 1, /* local files */
	KVT_TIER_L2 = 2,   /* shared: Redis or Valkey, or a node's tiered-storage daemon */
	KVT_TIER_COUNT = 3,
	KVT_TIER_NONE = 255,
};
#define KVT_IN(tier) (1u << (tier)) /* for masks of tiers */
#define KVT_ALL_TIERS 0u            /* as a mask: no restriction */

/* --- the caller's clock and files, for simulations and tests ---------------------------------- */

/* NULL in a configuration: the machine's own clock. Borrowed until kvt_close. */
struct kvt_clock {
	int64_t (*now_ns)(void *self); /* monotonic */
	int64_t (*wall_ns)(void *self); /* since 1970; start of TTLs, which then run by now_ns */
	void *self;
};
struct kvt_io_layer; /* kvtier_io.h: files as the library uses them */
struct kvt_config_texts;

enum kvt_log_level { KVT_LOG_DEBUG, KVT_LOG_INFO, KVT_LOG_WARN, KVT_LOG_ERROR };

/* --- configuration ---------------------------------------------------------------------------- */

enum kvt_threads {
	KVT_THREADS_OWN = 0,    /* the library runs its own */
	/* none: the caller calls kvt_step(); for simulated time and tests. */
	KVT_THREADS_CALLER = 1,
};

/*
 * All settings. Each member from `fingerprint` to `controller_none_hash`, and from
 * `nvme_lock_wait_ns` on, has one key in the YAML form (l1_capacity: l1.capacity; kvtier reference
 * prints them); a test holds the two together. Texts are borrowed during kvt_open only.
 * "automatic": the size that `kvtier size` computes from the cgroup's limit, free memory, /dev/shm,
 * disk.
 */
struct kvt_config {
	uint32_t size; /* sizeof(struct kvt_config), by kvt_config_init */
	uint32_t abi;  /* KVT_ABI, likewise */

	struct kvt_fingerprint fingerprint; /* chunks of other fingerprints are never visible */
	uint32_t rank;                      /* names the store's folder: PATH/FINGERPRINT/RANK */
	uint32_t threads;                   /* enum kvt_threads */

	/* l1: chunks in CPU memory */
	uint64_t l1_capacity;    /* bytes of the arena, a hard limit; 0: automatic */
	/* "anon", "hugetlb", "shm:NAME", "fd:N" (an open file, the caller's). */
	const char *l1_backing;
	uint32_t l1_lock;        /* mlock the arena */
	int32_t l1_numa_node;    /* -1: the node of its first users */
	/* "lru", "lfu", "fifo", "arc", "s3fifo", "wtinylfu", "cost", "default". */
	const char *l1_policy;
	uint32_t l1_max_chunks;  /* entries; 0: from the capacity */
	uint64_t l1_scrub_rate;  /* bytes per second checked in the background; 0: none */
	uint64_t l1_scrub_ns;    /* minimum time of a pass over all of L1 */
	double l1_staging_share; /* share of the arena reserved for loads from below, 0 to 0.5 */

	/* nvme: chunks in local files */
	const char *nvme_path; /* a folder; NULL or "": no such tier */
	uint64_t nvme_capacity; /* bytes on disk, headers included; 0: automatic */
	const char *nvme_policy;
	uint32_t nvme_max_chunks; /* 0: from the capacity */
	const char *nvme_io;      /* "auto", "uring", "threads" */
	uint32_t nvme_depth;      /* operations under way at once */
	uint64_t nvme_sync_bytes; /* a crash loses at most this many written bytes ... */
	uint64_t nvme_sync_ns;    /* ... or writes of this time */
	uint32_t nvme_direct;     /* ask for O_DIRECT where the file system has it */

	/* l2: chunks that are shared with other processes and machines */
	/* "redis://host:6379", "sagemaker-hyperpod://host:9200", ...; "": none. */
	const char *l2_url;
	const char *l2_username;
	const char *l2_password_file; /* its first line is the password; "": the URL's or none */
	const char *l2_service;       /* Sentinel's name of the master */
	const char *l2_tls_ca;        /* PEM; "": the system's trusted CAs */
	const char *l2_tls_certificate;
	const char *l2_tls_key;
	uint32_t l2_connections;      /* to each server */
	uint64_t l2_inflight;         /* bytes under way, both directions */
	uint64_t l2_connect_ns;       /* limit of connecting, handshake and login */
	uint64_t l2_deadline_ns;      /* limit of one operation */
	uint64_t l2_part_bytes;       /* longer values are split */
	uint64_t l2_ttl_ns;           /* of values; 0: none */
	uint64_t l2_seen_ns;          /* time for which an answer "stored" is reused */
	uint64_t l2_missing_ns;       /* time for which an answer "not stored" is reused */
	const char *l2_bucket;        /* tiered storage */
	const char *l2_segment;       /* tiered storage: name of the daemon's shared memory */
	uint64_t l2_lease_ns;         /* tiered storage: requested with each lease */

	/* protect */
	const char *protect_keys; /* file of key ids and keys; NULL or "": plain with checksums */
	uint64_t ttl_ns;          /* since a chunk's last use; 0: none */
	uint64_t tenant_l1_bytes; /* limit of one tenant; 0: none */
	uint64_t tenant_nvme_bytes;

	/* control */
	/* Limit of bytes on their way to lower tiers; beyond it the oldest store is dropped; 0:
	 * auto. */
	uint64_t store_inflight;
	uint64_t load_inflight;   /* limit of bytes on their way up */
	uint32_t ops;             /* limit of operations begun and not yet taken */
	uint32_t fetch_when_slower; /* fetch even where recomputing would be faster */
	double prefill_tokens_per_second; /* until the engine reports; 0: unknown, fetch */
	uint32_t tokens_per_chunk;
	uint32_t breaker_failures;   /* failures in a row after which a tier is paused */
	uint64_t breaker_open_ns;    /* first pause; later ones double */
	uint64_t breaker_open_max_ns;

	/* events */
	uint32_t events_queue;        /* events kept for kvt_events; overflow drops the oldest */
	uint32_t tenant_metrics;      /* protect: tenants named by kvt_metrics, 0 to 64 */
	const char *events_publish;   /* ZeroMQ address, "tcp://127.0.0.1:5557"; NULL or "": none */
	const char *events_replay;    /* ZeroMQ address of the replay socket */
	const char *events_topic;
	uint64_t events_replay_bytes; /* kept for replay */

	/* controller: the cache reports its chunks to an LMCache controller, as an LMCache worker
	 * does */
	/* ZeroMQ address of the controller's events, "tcp://HOST:8300"; "": no controller. */
	const char *controller_pull;
	const char *controller_reply;     /* ... of its requests; "": a controller before 0.3.12 */
	const char *controller_heartbeat; /* ... of its heartbeats; "": the address in its answer */
	const char *controller_instance;  /* instance id; "": generated */
	const char *controller_ip;        /* this worker's address, for the controller; "": found */
	const char *controller_bind;      /* address to listen on for commands; "": controller_ip */
	const char *controller_ports;     /* ports of the command sockets, one per rank; "": any */
	uint64_t controller_heartbeat_ns;       /* between heartbeats; 0: none */
	uint64_t controller_heartbeat_delay_ns; /* before the first */
	uint64_t controller_answer_ns;          /* timeout of an answer */
	uint64_t controller_sync_delay_ns;      /* random delay before a full sync, at most this */
	uint32_t controller_sync_batch;         /* keys of one message */
	uint32_t controller_queue;              /* limit of changes that wait to be sent */
	uint32_t controller_max_chunks;         /* limit of chunks reported to the controller */
	uint64_t controller_pin_ns;             /* lifetime of the controller's pins */
	uint32_t controller_chunk_size;         /* tokens; LMCache's chunk_size */
	int32_t controller_worker;              /* number of the worker and its port; -1: rank */
	const char *controller_hash;            /* LMCache's pre_caching_hash_algorithm */
	const char *controller_hash_seed;       /* PYTHONHASHSEED; "unset": it is not set */
	const char *controller_none_hash;       /* NONE_HASH as a number; "": from the seed */

	/* environment; NULL: the machine's own */
	const struct kvt_clock *clock;
	const struct kvt_io_layer *io;
	void (*log)(void *self, uint32_t level, const char *line); /* NULL: standard error */
	void *log_self;

	/* The library's: texts made by kvt_config_read; NULL: none. */
	struct kvt_config_texts *texts;

	/* nvme, further: how long kvt_open waits for a store that another process owns. Then the
	 * cache works without the store and asks for it again while the handle is open. */
	uint64_t nvme_lock_wait_ns;

	/* node: engines of a node share their chunks in kvtierd's memory and on its NVMe */
	const char *node_share;   /* "never", "auto" (if kvtierd answers at kvt_open), "always" */
	const char *node_url;     /* "kvtierd://HOST:PORT" */
	const char *node_segment; /* name of kvtierd's shared memory */

	/* fragments: cached text that is not a prefix (kvtier_fragments.h). The library itself does
	 * not use these settings: engines' connectors and runners read them by
	 * kvt_fragments_settings */
	uint32_t fragments_enabled;
	const char *fragments_cut;       /* "separator", "content" */
	const char *fragments_separator; /* text whose tokens end a fragment */
	uint32_t fragments_min_tokens;   /* shorter fragments are not blended */
	uint32_t fragments_average_tokens; /* mean length with cut "content" */
	uint32_t fragments_max_tokens;     /* longer fragments are cut */
	double fragments_recompute_share;  /* of a fragment's tokens, 0 to 0.3 */
	uint32_t fragments_first_tokens;   /* first tokens of each fragment to recompute first */
	uint32_t fragments_check_layer;    /* its keys and values show which tokens deviate */

	/* more of section protect: bytes that one tenant may use in Redis; 0: no limit */
	uint64_t tenant_l2_bytes;

	/* node, further: caches of one engine on this machine, which divide automatic sizes
	 * equally */
	uint32_t node_ranks;

	/* control, further: events kept for kvt_trace; 0: no trace */
	uint32_t trace_events;
};

/* Fills in defaults; `size` is sizeof(struct kvt_config) as the caller was compiled. */
KVT_API void kvt_config_init(struct kvt_config *config, size_t size);

/*
 * Reads YAML over what *config holds. Every mistake is a line "NAME:LINE:COLUMN: KEY: found ...,
 * expected ..." in the text *report (NULL: no mistake; free it with kvt_text_free). A key with a
 * mistake keeps its value, so that the library runs with the other keys: KVT_EINVAL means that
 * there were mistakes, not that *config is unusable. Texts that *config then points at belong to
 * *config until kvt_config_finish, which sets all texts to their defaults. report may be NULL.
 * KVT_ENOMEM: *config is as it was.
 */
KVT_API enum kvt_status kvt_config_read(struct kvt_config *config, const char *name,
	const char *yaml, size_t len, char **report) KVT_MUST_CHECK;
KVT_API void kvt_config_finish(struct kvt_config *config);
KVT_API void kvt_text_free(char *text);

/* Sources of LMCache's configuration. */
struct kvt_lmcache_source {
	uint32_t size;    /* sizeof(struct kvt_lmcache_source) */
	uint32_t rank;    /* the asking rank of the engine; chooses among several folders */
	uint32_t ranks;   /* ranks of the engine on this node, for notes on sizes; 0: unknown */
	uint32_t reserved;
	const char *path; /* the file; NULL: LMCACHE_CONFIG_FILE's, "": none */
	/* "NAME=VALUE", ended by NULL, as environ; a later entry overrides an earlier one.
	 * LMCACHE_CHUNK_SIZE and lmcache.chunk_size are both taken for LMCache's chunk_size. NULL:
	 * none. */
	const char *const *variables;
};

/* The translation of LMCache's configuration. The struct owns its texts until
 * kvt_lmcache_finish. */
struct kvt_lmcache {
	uint32_t size; /* sizeof(struct kvt_lmcache), set by the caller */
	uint32_t reserved;
	char *settings;  /* YAML and also JSON, for kvt_config_read; may hold a password */
	/* JSON with those of these keys that were given: chunk_size, min_retrieve_tokens (tokens),
	 * save_decode_cache, save_unfull_chunk, lookup_timeout_ms, load_timeout_ms. */
	char *connector;
	char *mistakes;  /* lines "FILE:LINE:COLUMN: KEY: text" or "VARIABLE: text"; "" if none */
	char *notes;     /* likewise: keys ignored, or with another meaning here */
};

/*
 * Reads LMCache's own configuration: a YAML file and variables that override it
 * (cache/python/LMCACHE.md has each key). Its sizes are those of one worker and become those of one
 * rank. A key with a mistake, or without support here, has LMCache's default, and the other keys
 * apply: KVT_EINVAL means that there were such keys, *out is filled as with KVT_OK. KVT_MISS: there
 * is neither file nor variable. KVT_ENOMEM. Opens the file and nothing else.
 */
KVT_API enum kvt_status kvt_lmcache_read(
	const struct kvt_lmcache_source *source, struct kvt_lmcache *out) KVT_MUST_CHECK;
KVT_API void kvt_lmcache_finish(struct kvt_lmcache *out);

/* --- life ------------------------------------------------------------------------------------- */

struct kvt; /* one cache: its memory, its files, its threads */

/*
 * Opens a cache. A tier that cannot be opened (wrong folder, foreign format, locked by another
 * process, not enough memory) is left out with a line in the log and a reason in kvt_stats; the
 * call fails only if no tier at all can be opened, or with KVT_EINVAL and KVT_ENOMEM. A store on
 * disk that is locked, full, read-only or not this user's is tried again as long as the handle is
 * open. Waits up to 10 s for another owner of the store to release it.
 */
KVT_API enum kvt_status kvt_open(const struct kvt_config *config, struct kvt **out) KVT_MUST_CHECK;

/* Waits until lower tiers have stored all committed chunks. KVT_MISS: not within timeout_ns. */
KVT_API enum kvt_status kvt_drain(struct kvt *k, uint64_t timeout_ns) KVT_MUST_CHECK;

/*
 * Closes a cache; waits for I/O under way, not for queued stores. Leases and reservations must have
 * been released. NULL is allowed. To be called once, when no other call is running.
 */
KVT_API void kvt_close(struct kvt *k);

/*
 * KVT_THREADS_CALLER only: does the work that is due (timers, I/O, controllers) and returns the
 * number of things done; 0: no work is left now. *next_ns (NULL is allowed): time of the next call,
 * INT64_MAX: after the next call of another function. One thread at a time.
 */
KVT_API size_t kvt_step(struct kvt *k, int64_t *next_ns);

/* Weights changed: makes all chunks unreachable at once, in every tier, also after a crash.
 * KVT_MISS as kvt_erase. */
KVT_API enum kvt_status kvt_reset(struct kvt *k) KVT_MUST_CHECK;

/*
 * As kvt_reset, but shared tiers keep their chunks: other replicas, whose weights did not change,
 * go on using them. Memory and local files are empty when the call returns. For a caller that makes
 * its keys from another fingerprint from now on (struct kvt_key_parts), since shared tiers still
 * have the chunks of old keys. KVT_MISS: not durable within timeout_ns; a crash now may bring
 * chunks in local files back.
 */
KVT_API enum kvt_status kvt_forget(struct kvt *k, uint64_t timeout_ns) KVT_MUST_CHECK;

/* --- asking ----------------------------------------------------------------------------------- */

struct kvt_lookup {
	size_t hits;  /* chunks from the chain's beginning that are in some tier */
	size_t worth; /* of these, chunks worth fetching: computing the others is faster */
	uint64_t fetch_ns;     /* estimate for the `worth` chunks */
	uint64_t recompute_ns; /* estimate for the same tokens; 0: rate unknown */
};

/*
 * Finds the stored prefix of a chain: keys in the order of the prompt. tiers (NULL is allowed)
 * receives for each of the n keys the fastest tier that holds it or KVT_TIER_NONE; after the first
 * missing chunk all are KVT_TIER_NONE. Never waits, takes no lease, does not count as a use.
 */
KVT_API enum kvt_status kvt_lookup(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint8_t *tiers, struct kvt_lookup *out) KVT_MUST_CHECK;

/*
 * As kvt_lookup, but also asks shared tiers about chunks of unknown presence there, for at most
 * timeout_ns. Chunks without an answer by then count as missing.
 */
KVT_API enum kvt_status kvt_find(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint64_t timeout_ns, uint8_t *tiers,
	struct kvt_lookup *out) KVT_MUST_CHECK;

/* --- getting ---------------------------------------------------------------------------------- */

/* Bytes of a chunk, or a part of them, in the arena. */
struct kvt_segment {
	void *base;
	uint64_t bytes;
	/* From the arena's beginning: for callers that map shm:NAME or pin the arena. */
	uint64_t arena_offset;
};

/* One chunk of a lease: segments[first .. first + count) one after another are its bytes. */
struct kvt_view {
	uint32_t first_segment;
	uint32_t segment_count;
	uint64_t bytes;
	uint8_t tier; /* tier where it was found */
};

/* Holds chunks in L1: until the lease's release they stay in place, unchanged. */
struct kvt_lease {
	const struct kvt_view *views; /* one per chunk of the lease, in the chain's order */
	size_t count;
	const struct kvt_segment *segments;
	size_t segment_count;
};

/*
 * Gets the longest stored prefix of a chain that is worth fetching, with one wait: chunks below L1
 * are loaded first. KVT_OK: *lease has 1 to n chunks, fewer than n if the next one is missing,
 * failed its check or did not come within timeout_ns. KVT_MISS: not even the first. Release with
 * kvt_release. A lease does not expire; statistics contain the age of the oldest.
 */
KVT_API enum kvt_status kvt_get(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, struct kvt_lease **lease) KVT_MUST_CHECK;
KVT_API void kvt_release(struct kvt *k, struct kvt_lease *lease); /* NULL is allowed */

/*
 * Releases a lease whose chunks are not needed again soon: chunks from number `from` on that were
 * loaded from a lower tier leave L1 at once, unless they are pinned or held by others. So a chain
 * longer than L1, got and released part by part, takes only the room of the parts under way.
 */
KVT_API void kvt_release_passing(struct kvt *k, struct kvt_lease *lease, size_t from);

/* Checks that every byte under this lease is still as committed; reads all of them. KVT_ECORRUPT:
 * some are not, and their chunks are dropped. */
KVT_API enum kvt_status kvt_verify(struct kvt *k, const struct kvt_lease *lease) KVT_MUST_CHECK;

/* Copies a chunk of a lease; `bytes` must be at least the view's. Returns the bytes copied. */
KVT_API uint64_t kvt_copy(const struct kvt_lease *lease, size_t index, void *to, uint64_t bytes);

/* --- putting ---------------------------------------------------------------------------------- */

/* Engine's own names of a chunk's blocks, for the chunk's events. Optional. */
struct kvt_blocks {
	const uint8_t *hashes;  /* count * hash_bytes, in order */
	uint32_t hash_bytes;    /* 8 (an integer, big-endian) or 16 or 32 */
	uint32_t count;
	const uint8_t *parent;  /* hash_bytes; NULL: the chunk begins a prompt */
	const uint32_t *tokens; /* count * block_size, or NULL */
	uint32_t block_size;    /* tokens per block */
	const char *lora_name;  /* NULL: none */
	/* Bits of the chunk's hash by which LMCache's controller knows it (kvt_lmcache_hash). */
	uint64_t lmcache_hash;
	uint32_t has_lmcache_hash; /* 0: this chunk is not reported to the controller */
	uint32_t reserved;
};

/* One chunk to put. All items of an array have the same `size`. */
struct kvt_item {
	uint32_t size; /* sizeof(struct kvt_item) */
	uint32_t tokens; /* tokens of the prompt in it; 0: config.tokens_per_chunk */
	struct kvt_key key;
	/* The chunk before; NULL: first of its chain. A chunk whose parent is stored nowhere is
	 * refused, since no get would reach it. */
	const struct kvt_key *parent;
	uint64_t bytes;               /* > 0 */
	struct kvt_tenant tenant;
	uint64_t ttl_ns;                 /* 0: the configuration's */
	const struct kvt_blocks *blocks; /* NULL: no events for it */
	uint32_t blocks_size; /* sizeof(struct kvt_blocks); 0: its members up to lora_name */
	uint32_t flags; /* KVT_ITEM_* */
};

/* The item's bytes are not exact for its key: fragments of other texts were blended into it
 * (kvtier_fragments.h). Puts refuse such an item with KVT_EINVAL, so that blended chunks are never
 * found as exact. */
#define KVT_ITEM_BLENDED 1u

/* XXH3-128 of a chunk's bytes. */
struct kvt_checksum {
	uint64_t low, high;
};

struct kvt_reservation; /* room for chunks that are being filled; invisible to others */

/*
 * Reserves room for n chunks, in order; evicts others for it. *out and *segments (borrowed until
 * commit or abort; chunk i has counts[i] of them, one after another) are set if at least one chunk
 * got room. status[i]: KVT_OK, KVT_EXISTS (there or being filled by another put: counts[i] is 0),
 * KVT_FULL, KVT_MISS (its parent is in no tier, not being filled, not in this call, or was refused
 * just now), KVT_EINVAL. Returns KVT_OK if any is KVT_OK, else the first one's. Does not wait.
 */
KVT_API enum kvt_status kvt_put_reserve(struct kvt *k, const struct kvt_item *items, size_t n,
	struct kvt_reservation **out, const struct kvt_segment **segments, uint32_t *counts,
	uint32_t *status) KVT_MUST_CHECK;

/*
 * Makes the first `ready` chunks visible and drops the rest; takes the reservation. The call
 * computes their checksums on the calling thread, unless the caller passes checksums (n of them,
 * one per chunk, from kvt_fill).
 */
KVT_API enum kvt_status kvt_put_commit(struct kvt *k, struct kvt_reservation *reservation,
	size_t ready, const struct kvt_checksum *checksums) KVT_MUST_CHECK;
KVT_API void kvt_put_abort(struct kvt *k, struct kvt_reservation *reservation);

/* Copies bytes into segments and computes their checksum, at about the cost of the copy alone. */
KVT_API void kvt_fill(const struct kvt_segment *segments, size_t count, const void *from,
	uint64_t bytes, struct kvt_checksum *out);

/* Reserve, fill, commit of one chunk. KVT_EXISTS: it was stored already; KVT_MISS as above. */
KVT_API enum kvt_status kvt_put(
	struct kvt *k, const struct kvt_item *item, const void *bytes) KVT_MUST_CHECK;

/* --- other verbs ------------------------------------------------------------------------------ */

/* Starts loading the prefix of a chain into L1, at most an eighth of L1. Never waits; chunks
 * without room are not loaded. */
KVT_API enum kvt_status kvt_prefetch(
	struct kvt *k, const struct kvt_key *keys, size_t n) KVT_MUST_CHECK;

/* Pins chunks against eviction in every tier that has them (TTL still applies), or unpins them.
 * *changed (NULL is allowed): number of chunks found. Pins are not counted. */
KVT_API enum kvt_status kvt_pin(
	struct kvt *k, const struct kvt_key *keys, size_t n, size_t *changed) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_unpin(
	struct kvt *k, const struct kvt_key *keys, size_t n, size_t *changed) KVT_MUST_CHECK;

/* Once an erase of a tenant or version returns KVT_OK, no erased chunk can be read through this
 * handle any more, also after a crash, and by no other process once l2.seen_time (10 s at most) is
 * over; held leases stay valid until their release. An erase of keys that returns KVT_OK has taken
 * them from this process' memory and disk, and sent one DEL to a shared tier: a store of the same
 * chunk by another process, or one under way on a connection that was given up, may bring it back
 * there. KVT_EIO: a shared tier did not confirm the erase, nothing is promised. Waits for a durable
 * record, up to timeout_ns. KVT_MISS: unreadable now, but not yet known to be durable; of keys also
 * that a shared tier, which is asked once, may have them still. Without a shared tier KVT_MISS also
 * comes at once while another process owns the store: this handle erases there once it owns the
 * store, unless it closes before. cache/ERASING.md has the details. */
KVT_API enum kvt_status kvt_erase(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, size_t *erased) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_erase_tenant(struct kvt *k, const struct kvt_tenant *tenant,
	uint64_t timeout_ns, size_t *erased) KVT_MUST_CHECK;
/* The handle's own fingerprint: empties its store. Another fingerprint: removes its store under the
 * same path and of the same rank (KVT_MISS: there is none; KVT_ELOCKED: another process owns it);
 * with a shared tier all processes of that fingerprint hear of it, also the owner of such a store,
 * and KVT_OK is as above. */
KVT_API enum kvt_status kvt_erase_version(struct kvt *k, const struct kvt_fingerprint *fingerprint,
	uint64_t timeout_ns, size_t *erased) KVT_MUST_CHECK;

/* Selects chunks to erase: those that match every member set here. At least one must be set. */
struct kvt_which {
	uint32_t size;                   /* sizeof(struct kvt_which) */
	uint32_t dry_run;                /* only count */
	const struct kvt_tenant *tenant; /* NULL: any */
	const struct kvt_fingerprint
		*fingerprint;       /* NULL: any; another than the handle's own matches nothing */
	const struct kvt_key *keys; /* NULL: any */
	size_t key_count;           /* up to 4096 */
};

enum kvt_counted {
	KVT_COUNTED_NO_TIER =
		0, /* not configured, or not opened (kvt_stats has the reason) */
	KVT_COUNTED = 1,
	KVT_COUNTED_UNKNOWN =
		2, /* erased, but the tier cannot count: others store there, too */
};

/* Chunks found by kvt_erase_which, in each tier, when it began. */
struct kvt_erased {
	uint32_t size; /* sizeof(struct kvt_erased), set by the caller */
	uint32_t reserved;
	struct {
		uint32_t counted; /* enum kvt_counted */
		uint32_t reserved;
		uint64_t chunks, bytes; /* bytes: of chunks, without overhead */
	} tiers[KVT_TIER_COUNT];
};

/*
 * As kvt_erase, of the chunks that `which` selects; a key also selects its ends (kvt_key_ends), an
 * object that counts by itself. Keys with a tenant: chunks that no tier knows to be of that tenant
 * are kept; shared tiers are asked about keys first. *out is set with KVT_OK and KVT_MISS
 * (unreadable, but not yet known to be durable), and with other results of an erase that had begun.
 * Chunks of a shared tier cannot be counted. KVT_EINVAL: no member of `which` is set.
 */
KVT_API enum kvt_status kvt_erase_which(struct kvt *k, const struct kvt_which *which,
	uint64_t timeout_ns, struct kvt_erased *out) KVT_MUST_CHECK;

/* Sets limits of one tenant in place of the configuration's (tenant_l1_bytes, tenant_nvme_bytes);
 * 0: none. They hold from the next put on, for the life of the handle; a tenant that is above its
 * limit loses its oldest chunks with its next put. KVT_FULL: 4096 tenants have limits already;
 * KVT_ENOMEM. */
KVT_API enum kvt_status kvt_limit_tenant(struct kvt *k, const struct kvt_tenant *tenant,
	uint64_t l1_bytes, uint64_t nvme_bytes) KVT_MUST_CHECK;

/* Reports that the engine computed `tokens` in `ns`. The rate decides what is worth fetching. */
KVT_API void kvt_report_prefill(struct kvt *k, uint64_t tokens, uint64_t ns);

/* --- doing it asynchronously ------------------------------------------------------------------ */

enum kvt_op_kind { KVT_OP_GET = 1, KVT_OP_ERASE = 2, KVT_OP_DRAIN = 3, KVT_OP_FIND = 4 };

struct kvt_completion {
	uint64_t op;   /* as the begin function gave it */
	uint64_t user; /* as the caller passed it there */
	uint32_t kind; /* enum kvt_op_kind */
	uint32_t status;
	uint64_t count; /* chunks got, erased or found */
};

/* As kvt_get; its completion has status KVT_OK or KVT_MISS, then kvt_get_take hands out the lease
 * (once). KVT_BUSY: config.ops are under way. A lease that is never taken is released at close. */
KVT_API enum kvt_status kvt_get_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_get_take(
	struct kvt *k, uint64_t op, struct kvt_lease **lease) KVT_MUST_CHECK;
/* As kvt_find; the completion has the number of chunks. kvt_lookup then knows the tiers, for as
 * long as answers are reused (l2_seen_ns). */
KVT_API enum kvt_status kvt_find_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_erase_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_drain_begin(
	struct kvt *k, uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;

/* Completes the operation early, with KVT_ECANCELED, unless it is complete already. KVT_MISS: no
 * such op. */
KVT_API enum kvt_status kvt_cancel(struct kvt *k, uint64_t op) KVT_MUST_CHECK;

/* A descriptor that becomes readable when completions wait, and stays so until kvt_poll has taken
 * them all. The handle owns it. */
KVT_API int kvt_eventfd(struct kvt *k);
KVT_API size_t kvt_poll(struct kvt *k, struct kvt_completion *out, size_t max);

/* --- eyes ------------------------------------------------------------------------------------- */

enum kvt_event_kind { KVT_EVENT_STORED = 1, KVT_EVENT_REMOVED = 2, KVT_EVENT_CLEARED = 3 };

/* A change of a tier's contents, in the engine's block hashes. Arrays are borrowed until the next
 * call of kvt_events on this handle. */
struct kvt_event {
	uint64_t sequence; /* counts up by one; a gap: events were lost */
	uint32_t kind;
	uint32_t tier;
	const uint8_t *hashes; /* count * hash_bytes */
	uint32_t hash_bytes;
	uint32_t count;
	const uint8_t *parent;  /* stored only; NULL: begins a prompt */
	const uint32_t *tokens; /* stored only, in the first tier that stores it; else NULL */
	uint32_t block_size;
	const char *lora_name;
};

/* Takes up to max events, oldest first. One thread at a time. */
KVT_API size_t kvt_events(struct kvt *k, struct kvt_event *out, size_t max);

#define KVT_REASON_BYTES 160

struct kvt_tier_stats {
	uint32_t state;  /* enum kvt_tier_state */
	uint32_t reserved;
	char mode[32];   /* "anon", "hugetlb", "uring", "uring-plain", "threads", ... */
	char reason[KVT_REASON_BYTES]; /* why this mode, or why the tier is not open */
	uint64_t capacity, used, payload; /* bytes: limit, occupied, of these the chunks' own */
	uint64_t chunks;
	uint64_t metadata_bytes; /* memory for the index and the policy */
	uint64_t ghost_bytes;    /* memory of some policies for names of evicted chunks */
	uint64_t name_bytes;     /* memory for the engine's names, for events */
	uint64_t hits, misses;   /* chunks, by gets */
	uint64_t loads, load_bytes, stores, store_bytes;
	uint64_t evictions, expired, erased;
	uint64_t corrupt, io_errors;
	uint64_t leased, pinned; /* chunks now */
	uint64_t oldest_lease_ns;
	uint64_t read_bytes_per_second, write_bytes_per_second; /* learned; 0: unknown */
	uint64_t queued_read_bytes, queued_write_bytes;
	uint64_t breaker_trips;
};
enum kvt_tier_state { KVT_TIER_ABSENT, KVT_TIER_WORKS, KVT_TIER_PAUSED, KVT_TIER_BROKEN };

struct kvt_stats {
	uint32_t size; /* set by the caller: sizeof(struct kvt_stats) */
	uint32_t reserved;
	struct kvt_tier_stats tiers[KVT_TIER_COUNT];
	uint64_t lookups, lookup_chunks, lookup_hits;
	uint64_t gets, get_chunks, get_hits, get_timeouts;
	uint64_t puts, put_bytes, put_exists, put_full;
	uint64_t stores_dropped, prefetches, promotions, joined_loads;
	uint64_t not_worth_fetching; /* chunks not fetched because computing is faster */
	uint64_t events, events_lost;
	uint64_t prefill_tokens_per_second; /* learned; 0: unknown */
	uint64_t finds; /* kvt_find, kvt_find_begin; chunks and hits count as lookups' */
	uint64_t probes, probe_chunks, probe_hits; /* questions to shared tiers */
	uint64_t lock_refusals; /* tries that found the NVMe store owned by another process */
	uint64_t put_blended;   /* puts refused: KVT_ITEM_BLENDED */
	/* By tier: chunks evicted for the limit of their tenant, and chunks refused for it. If L2
	 * is kvtierd, which has the limits itself: only refusals, of chunks that this handle
	 * sent. */
	uint64_t tenant_evictions[KVT_TIER_COUNT], tenant_refusals[KVT_TIER_COUNT];
	/* By shared tier: erases of tenants (an erase of all counts as one) by other processes that
	 * this handle has applied. */
	uint64_t erased_elsewhere[KVT_TIER_COUNT];
	/* Tables of generations that a shared tier lost: all its chunks became unreachable. */
	uint64_t tables_lost;
	uint64_t tables_refused; /* questions for them that a tier refused, though it was reached */
	uint64_t put_orphans; /* puts that were refused: the chunk's parent is stored nowhere */
};
KVT_API enum kvt_status kvt_stats(struct kvt *k, struct kvt_stats *out) KVT_MUST_CHECK;

/* All metrics in Prometheus' text format, with lmcache:* names for metrics of the same meaning.
 * Free with kvt_text_free. */
KVT_API enum kvt_status kvt_metrics(struct kvt *k, char **text) KVT_MUST_CHECK;

/* The handle's recent events: gets with their hits and the reason of a miss, requests to tiers,
 * puts, dropped stores. The newest `most` events in the order of their ends, then as many slow,
 * incomplete or failed ones; one line of JSON each, which `kvtier trace -` reads. The first 4 bytes
 * of its key name a chunk. Free with kvt_text_free. KVT_ENOTSUP: no trace is kept. */
KVT_API enum kvt_status kvt_trace(struct kvt *k, size_t most, char **text) KVT_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
