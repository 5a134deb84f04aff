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

/* Results of calls. Their values are part of the ABI. */
enum kvt_status {
	KVT_OK = 0,
	KVT_MISS = 1,       /* the chunk is not stored, or not available within the time limit */
	KVT_EXISTS = 2,     /* put: the chunk is stored already, so there is nothing to do */
	KVT_FULL = 3,       /* there is no room, and no chunk may be evicted */
	KVT_BUSY = 4,       /* the limit of operations under way is reached: try again later */
	KVT_EINVAL = 5,     /* an argument is wrong */
	KVT_ENOMEM = 6,     /* an allocation failed */
	KVT_EIO = 7,        /* the operating system refused an operation; the log has the cause */
	KVT_ECORRUPT = 8, /* a chunk failed its check and was dropped; a get returns KVT_MISS */
	KVT_EFORMAT = 9,    /* the store has another format, or a newer one; it was not changed */
	KVT_ELOCKED = 10,   /* another process owns the store; the log has its pid */
	KVT_EFORK = 11,     /* the handle was opened before a fork */
	KVT_ECANCELED = 12, /* the operation was cancelled, or the handle is closing */
	KVT_ENOTSUP = 13,   /* this build or this machine does not support the call */
};

/* Returns a short text for people, for any value; never NULL. Static. */
KVT_API const char *kvt_status_text(enum kvt_status status);

/* Returns the library's version, "MAJOR.MINOR.PATCH". Static. */
KVT_API const char *kvt_version(void);

/* --- names ------------------------------------------------------------------------------------ */

#define KVT_KEY_BYTES 32

/* Storage key of a chunk. Keys are only ever compared as a whole. */
struct kvt_key {
	uint8_t bytes[KVT_KEY_BYTES];
};

/* Hash of all that gives a chunk's bytes their meaning: model, weights, layout, dtype, sizes. */
struct kvt_fingerprint {
	uint8_t bytes[32];
};

/* Hash of a cache salt, by which tenants are told apart; all zero: requests without a salt. */
struct kvt_tenant {
	uint8_t bytes[16];
};

/* The data from which a storage key is made. */
struct kvt_key_parts {
	uint32_t size; /* sizeof(struct kvt_key_parts) */
	uint32_t rank; /* the parallel rank; 0 if all ranks share the chunk */
	/* The engine's hash of the chunk's last block, which covers the tokens before it, salt,
	 * LoRA and images. */
	const void *chain_id;
	size_t chain_id_bytes; /* 16 to 64; a shorter hash is not cryptographic, and is refused */
	/* The engine's name of its hash, such as "sha256_cbor": the same tokens have another key
	 * with another hash. */
	const char *hash_recipe;
	const char *hash_seed;   /* PYTHONHASHSEED or NULL */
	struct kvt_fingerprint fingerprint;
	struct kvt_tenant tenant;
};

/* Makes a storage key: SHA-256 over the domain "kvtier key 1" and every part with its length. Two
 * bytes of the key are then taken from the tenant: by them an erase of the tenant finds its chunks
 * in shared tiers. Such an erase does not find chunks there whose keys were made in another way.
 * KVT_EINVAL. */
KVT_API enum kvt_status kvt_key_make(
	const struct kvt_key_parts *parts, struct kvt_key *out) KVT_MUST_CHECK;

/* Makes the key of a chunk's second object, called its ends. Models that mix windowed and full
 * attention store there the last blocks of each window, apart from the rest. The key is SHA-256
 * over the domain "kvtier ends 1" and the chunk's key. `out` may be `key`. */
KVT_API void kvt_key_ends(const struct kvt_key *key, struct kvt_key *out);

/* Makes a chain id, for engines that have no hash of their own: SHA-256 over the parent's chain id
 * (NULL: the chunk is the first) and the tokens. */
KVT_API void kvt_chain_id(const uint8_t parent[32], const uint32_t *tokens, size_t count,
	uint8_t out[32]);

/* Makes a tenant from its salt: the first 16 bytes of SHA-256 over a domain and the salt. len 0
 * gives the zero tenant. */
KVT_API void kvt_tenant_of(const void *salt, size_t len, struct kvt_tenant *out);

struct kvt_config;

/*
 * Computes hashes by which an LMCache controller, configured in section `controller`, names the
 * chunks of a prompt. A chunk's hash is computed from its tokens (1 to 8192) and the hash of the
 * chunk before it; for the first chunk that is *state. KVT_MISS: no controller is configured;
 * KVT_ENOTSUP: the hash cannot be computed outside LMCache (`builtin` without a seed). Cost: about
 * a microsecond for 256 tokens.
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
#define KVT_IN(tier) (1u << (tier)) /* a tier's bit in a mask of tiers */
#define KVT_ALL_TIERS 0u            /* a mask of tiers that allows all of them */

/* --- the caller's clock and files, for simulations and tests ---------------------------------- */

/* A clock. NULL in a configuration: the machine's own clock. Borrowed until kvt_close. */
struct kvt_clock {
	int64_t (*now_ns)(void *self); /* monotonic */
	int64_t (*wall_ns)(void *self); /* time since 1970, at which TTLs begin */
	void *self;
};
struct kvt_io_layer; /* see kvtier_io.h: how the library accesses files */
struct kvt_config_texts;

enum kvt_log_level { KVT_LOG_DEBUG, KVT_LOG_INFO, KVT_LOG_WARN, KVT_LOG_ERROR };

/* --- configuration ---------------------------------------------------------------------------- */

enum kvt_threads {
	KVT_THREADS_OWN = 0,    /* the library runs its own threads */
	/* no threads: the caller calls kvt_step(), for simulated time and tests */
	KVT_THREADS_CALLER = 1,
};

/*
 * All settings. Each member from `fingerprint` to `controller_none_hash`, and from
 * `nvme_lock_wait_ns` on, has one key in the YAML form (l1_capacity is l1.capacity there; `kvtier
 * reference` prints them), which a test checks. Texts are borrowed during kvt_open only.
 * "automatic" stands for the size that `kvtier size` computes from the cgroup's limit, free memory,
 * /dev/shm and the disk.
 */
struct kvt_config {
	uint32_t size; /* sizeof(struct kvt_config), set by kvt_config_init */
	uint32_t abi;  /* KVT_ABI, likewise */

	struct kvt_fingerprint fingerprint; /* chunks of other fingerprints are never found */
	uint32_t rank; /* part of the name of the store's folder, PATH/FINGERPRINT/RANK */
	uint32_t threads;                   /* enum kvt_threads */

	/* --- l1: chunks in CPU memory */
	uint64_t l1_capacity;    /* bytes of the arena, which are never exceeded; 0: automatic */
	/* "anon", "hugetlb", "shm:NAME", or "fd:N" (a file that the caller has opened). */
	const char *l1_backing;
	uint32_t l1_lock;        /* mlock the arena */
	int32_t l1_numa_node; /* NUMA node of the arena; -1: that of its first users */
	/* "lru", "lfu", "fifo", "arc", "s3fifo", "wtinylfu", "cost", "default". */
	const char *l1_policy;
	uint32_t l1_max_chunks;  /* most chunks in L1; 0: computed from the capacity */
	uint64_t l1_scrub_rate; /* bytes per second that are checked in the background; 0: none */
	uint64_t l1_scrub_ns;    /* a pass over all of L1 takes at least this time */
	double l1_staging_share; /* share of the arena for loads from lower tiers, 0 to 0.5 */

	/* --- nvme: chunks in local files */
	const char *nvme_path; /* folder of the stores; NULL or "": there is no NVMe tier */
	uint64_t nvme_capacity; /* bytes on disk, with headers; 0: automatic */
	const char *nvme_policy;
	uint32_t nvme_max_chunks; /* 0: from the capacity */
	const char *nvme_io;      /* "auto", "uring", "threads" */
	uint32_t nvme_depth;      /* most operations under way at once */
	uint64_t nvme_sync_bytes; /* a crash loses at most this many written bytes ... */
	uint64_t nvme_sync_ns;    /* ... or the writes of at most this time */
	uint32_t nvme_direct;     /* 1: use O_DIRECT where the file system has it */

	/* --- l2: chunks that are shared with other processes and machines */
	const char *l2_url; /* such as "redis://host:6379"; "": there is no L2 tier */
	const char *l2_username;
	const char *l2_password_file; /* file with the password; "": that in the URL, if any */
	const char *l2_service;       /* name that Sentinel has for the master */
	const char *l2_tls_ca;        /* file of trusted CAs in PEM; "": the system's CAs */
	const char *l2_tls_certificate;
	const char *l2_tls_key;
	uint32_t l2_connections;      /* to each server */
	uint64_t l2_inflight;         /* most bytes under way, in both directions together */
	uint64_t l2_connect_ns;       /* longest time for connecting, handshake and login */
	uint64_t l2_deadline_ns;      /* longest time for one operation */
	uint64_t l2_part_bytes;       /* a longer value is split into parts of this length */
	uint64_t l2_ttl_ns;           /* TTL of values; 0: none */
	uint64_t l2_seen_ns;          /* time for which an answer "stored" is believed */
	uint64_t l2_missing_ns;       /* time for which an answer "not stored" is believed */
	const char *l2_bucket;        /* tiered storage */
	const char *l2_segment;       /* tiered storage: name of the shared memory of the daemon */
	uint64_t l2_lease_ns; /* tiered storage: the time for which each lease is requested */

	/* protect */
	const char *protect_keys; /* file of key ids and keys; NULL or "": no encryption */
	uint64_t ttl_ns;          /* lifetime of a chunk since its last use; 0: not limited */
	uint64_t tenant_l1_bytes; /* most bytes that one tenant may use in L1; 0: not limited */
	uint64_t tenant_nvme_bytes;

	/* control */
	/* Most bytes on their way to lower tiers; if there are more, the oldest store is dropped;
	 * 0: automatic. */
	uint64_t store_inflight;
	uint64_t load_inflight;   /* most bytes on their way from lower tiers */
	uint32_t ops; /* most operations begun by the caller and not yet taken from kvt_poll */
	uint32_t fetch_when_slower; /* 1: fetch chunks even where computing is faster */
	/* used until the engine reports its rate; 0: unknown, so all chunks are fetched */
	double prefill_tokens_per_second;
	uint32_t tokens_per_chunk;
	uint32_t breaker_failures;   /* a tier is paused after this many failures in a row */
	uint64_t breaker_open_ns; /* length of the first pause; each later one is twice as long */
	uint64_t breaker_open_max_ns;

	/* events */
	uint32_t events_queue; /* most events kept for kvt_events; older are dropped */
	uint32_t tenant_metrics; /* section protect: most tenants that kvt_metrics names, 0 to 64 */
	/* ZeroMQ address at which events are published, "tcp://127.0.0.1:5557"; NULL or "": none */
	const char *events_publish;
	const char *events_replay; /* ZeroMQ address for requests of past events */
	const char *events_topic;
	uint64_t events_replay_bytes; /* kept for replay */

	/* --- controller: the cache reports to an LMCache controller, like an LMCache worker */
	/* ZeroMQ address for events, "tcp://HOST:8300"; "": there is no controller. */
	const char *controller_pull;
	const char *controller_reply; /* address for requests; "": controller before 0.3.12 */
	const char *controller_heartbeat; /* for heartbeats; "": the controller names it */
	const char *controller_instance;  /* instance id; "": generated */
	const char *controller_ip; /* this worker's address; "": found automatically */
	const char *controller_bind; /* address to listen on for commands; "": controller_ip */
	const char *controller_ports; /* ports for the commands, one for each rank; "": any port */
	uint64_t controller_heartbeat_ns;       /* between heartbeats; 0: none */
	uint64_t controller_heartbeat_delay_ns; /* before the first */
	uint64_t controller_answer_ns; /* longest time to wait for an answer of the controller */
	uint64_t controller_sync_delay_ns; /* longest random delay before a full report */
	uint32_t controller_sync_batch;         /* most keys in one message */
	uint32_t controller_queue;              /* most changes that wait to be sent */
	uint32_t controller_max_chunks; /* most chunks that are reported to the controller */
	uint64_t controller_pin_ns;             /* time after which a pin by the controller ends */
	uint32_t controller_chunk_size;         /* tokens of a chunk: LMCache's chunk_size */
	int32_t controller_worker; /* number of this worker and its port; -1: the rank */
	const char *controller_hash; /* the hash in LMCache: pre_caching_hash_algorithm */
	const char *controller_hash_seed; /* PYTHONHASHSEED of LMCache; "unset": it has none */
	const char *controller_none_hash; /* NONE_HASH as a number; "": from the seed */

	/* environment; NULL: the machine's own clock and files */
	const struct kvt_clock *clock;
	const struct kvt_io_layer *io;
	void (*log)(void *self, uint32_t level, const char *line); /* NULL: standard error */
	void *log_self;

	struct kvt_config_texts *texts; /* used by kvt_config_read and _finish only */

	/* Section nvme, further. How long kvt_open waits for a store that another process owns.
	 * Then the cache works without it, and tries to open it again while the handle is open. */
	uint64_t nvme_lock_wait_ns;

	/* --- node: a node's engines share their chunks in kvtierd's memory and on its NVMe */
	const char *node_share; /* "never", "auto" (if kvtierd answers at kvt_open), "always" */
	const char *node_url;     /* "kvtierd://HOST:PORT" */
	const char *node_segment; /* name of the shared memory of kvtierd */

	/* Section fragments: cached text that is not a prefix (kvtier_fragments.h). The library
	 * itself does not use these settings: connectors of engines, and programs that run models,
	 * read them by kvt_fragments_settings. */
	uint32_t fragments_enabled;
	const char *fragments_cut;       /* "separator", "content" */
	const char *fragments_separator; /* text whose tokens end a fragment */
	uint32_t fragments_min_tokens;   /* fragments with fewer tokens are not blended */
	uint32_t fragments_average_tokens; /* mean length if fragments_cut is "content" */
	uint32_t fragments_max_tokens;     /* fragments with more tokens are cut */
	double fragments_recompute_share;  /* share of a fragment's tokens to recompute, 0 to 0.3 */
	uint32_t fragments_first_tokens; /* first tokens of each fragment, recomputed first */
	uint32_t fragments_check_layer; /* layer that shows which tokens deviate most */

	uint64_t tenant_l2_bytes; /* protect: bytes of one tenant in Redis; 0: not limited */

	/* Section node, further. Number of caches of one engine on this machine, which divide
	 * automatic sizes equally */
	uint32_t node_ranks;

	uint32_t trace_events; /* control: most events kept for kvt_trace; 0: no trace */
};

/* Fills in defaults; `size` is sizeof(struct kvt_config) as the caller was compiled. */
KVT_API void kvt_config_init(struct kvt_config *config, size_t size);

/*
 * Reads YAML into *config; keys that the text does not have keep their values. Every mistake is a
 * line "NAME:LINE:COLUMN: KEY: found ..., expected ..." in the text *report (NULL: no mistake; free
 * it with kvt_text_free). A key with a mistake keeps its value, so that the library runs with the
 * other keys: KVT_EINVAL means that there were mistakes, not that *config is unusable. Texts that
 * *config then points at belong to *config until kvt_config_finish, which sets all texts to their
 * defaults. report may be NULL. KVT_ENOMEM: *config is as it was.
 */
KVT_API enum kvt_status kvt_config_read(struct kvt_config *config, const char *name,
	const char *yaml, size_t len, char **report) KVT_MUST_CHECK;
KVT_API void kvt_config_finish(struct kvt_config *config);
KVT_API void kvt_text_free(char *text);

/* Where LMCache's configuration comes from. */
struct kvt_lmcache_source {
	uint32_t size;    /* sizeof(struct kvt_lmcache_source), set by the caller */
	uint32_t rank;    /* the engine's rank that asks; it chooses among several folders */
	uint32_t ranks; /* ranks of the engine on this node, for notes on sizes; 0: unknown */
	uint32_t reserved;
	const char *path; /* path of the file; NULL: that in LMCACHE_CONFIG_FILE; "": no file */
	/* Variables "NAME=VALUE", ended by NULL, as environ has them; a later entry overrides an
	 * earlier one. LMCACHE_CHUNK_SIZE and lmcache.chunk_size both set LMCache's chunk_size.
	 * NULL: no variables. */
	const char *const *variables;
};

/* LMCache's configuration, translated. The struct owns its texts until kvt_lmcache_finish. */
struct kvt_lmcache {
	uint32_t size; /* sizeof(struct kvt_lmcache), set by the caller */
	uint32_t reserved;
	char *settings;  /* YAML that is also JSON, for kvt_config_read; may contain a password */
	/* JSON with those of these keys that LMCache's configuration sets: chunk_size,
	 * min_retrieve_tokens (tokens), save_decode_cache, save_unfull_chunk, lookup_timeout_ms,
	 * load_timeout_ms. */
	char *connector;
	/* lines "FILE:LINE:COLUMN: KEY: text" or "VARIABLE: text"; "": no mistake */
	char *mistakes;
	char *notes;     /* the same for keys that are ignored, or mean something else here */
};

/*
 * Reads LMCache's own configuration: a YAML file and variables that override it
 * (cache/python/LMCACHE.md has each key). Its sizes are those of one worker and become those of one
 * rank. A key with a mistake, or without support here, has LMCache's default, and the other keys
 * apply: KVT_EINVAL means that there were such keys, *out is filled as with KVT_OK. KVT_MISS: there
 * is neither file nor variable. KVT_ENOMEM. The call opens no other file.
 */
KVT_API enum kvt_status kvt_lmcache_read(
	const struct kvt_lmcache_source *source, struct kvt_lmcache *out) KVT_MUST_CHECK;
KVT_API void kvt_lmcache_finish(struct kvt_lmcache *out);

/* --- opening and closing ---------------------------------------------------------------------- */

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
 * Closes a cache. Waits for I/O under way, but not for queued stores. All leases and reservations
 * must have been released before. NULL is allowed. To be called once, when no other call is
 * running.
 */
KVT_API void kvt_close(struct kvt *k);

/*
 * For KVT_THREADS_CALLER only: does the work that is due (timers, I/O, controllers) and returns the
 * number of actions; 0: no work is left now. *next_ns (NULL is allowed) becomes the time when it
 * must be called again; INT64_MAX: only after another function was called. One thread at a time.
 */
KVT_API size_t kvt_step(struct kvt *k, int64_t *next_ns);

/* To be called when the weights changed: makes all chunks unreachable at once, in every tier, also
 * after a crash. KVT_MISS as of kvt_erase. */
KVT_API enum kvt_status kvt_reset(struct kvt *k) KVT_MUST_CHECK;

/*
 * As kvt_reset, but shared tiers keep their chunks: other replicas, whose weights did not change,
 * go on using them. Memory and local files are empty when the call returns. The caller must make
 * its keys from another fingerprint from now on (struct kvt_key_parts), since shared tiers still
 * have the chunks of the old keys. KVT_MISS: not durable within timeout_ns; a crash now may bring
 * chunks in local files back.
 */
KVT_API enum kvt_status kvt_forget(struct kvt *k, uint64_t timeout_ns) KVT_MUST_CHECK;

/* --- finding chunks --------------------------------------------------------------------------- */

struct kvt_lookup {
	size_t hits;  /* number of chunks, from the beginning of the chain, that are in some tier */
	size_t worth; /* number of those worth fetching: computing the others is faster */
	uint64_t fetch_ns;     /* estimated time for fetching the `worth` chunks */
	uint64_t recompute_ns; /* estimated time for computing their tokens; 0: unknown */
};

/*
 * Finds the stored prefix of a chain of keys, which are in the order of the prompt. tiers (NULL is
 * allowed) receives for each of the n keys the fastest tier that holds its chunk, or KVT_TIER_NONE;
 * after the first missing chunk all are KVT_TIER_NONE. The call never waits, takes no lease, and
 * does not count as a use of the chunks.
 */
KVT_API enum kvt_status kvt_lookup(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint8_t *tiers, struct kvt_lookup *out) KVT_MUST_CHECK;

/*
 * As kvt_lookup, but if it is not known whether shared tiers have a chunk, also asks them, for at
 * most timeout_ns. Chunks without an answer by then count as missing.
 */
KVT_API enum kvt_status kvt_find(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint64_t timeout_ns, uint8_t *tiers,
	struct kvt_lookup *out) KVT_MUST_CHECK;

/* --- getting ---------------------------------------------------------------------------------- */

/* Where a chunk's bytes, or a part of them, are in the arena. */
struct kvt_segment {
	void *base;
	uint64_t bytes;
	/* Offset in the arena: for callers that map shm:NAME, or pin the arena. */
	uint64_t arena_offset;
};

/* One chunk of a lease. Its bytes are in segments[first .. first + count), in this order. */
struct kvt_view {
	uint32_t first_segment;
	uint32_t segment_count;
	uint64_t bytes;
	uint8_t tier; /* the tier in which the chunk was found */
};

/* Holds chunks in L1: until the lease is released they stay where they are, unchanged. */
struct kvt_lease {
	const struct kvt_view *views; /* one view for each chunk, in the order of the chain */
	size_t count;
	const struct kvt_segment *segments;
	size_t segment_count;
};

/*
 * Gets the longest stored prefix of a chain that is worth fetching, with a single wait: chunks in
 * lower tiers are loaded into L1 first. KVT_OK: *lease has 1 to n chunks; fewer than n if the next
 * one is missing, failed its check or did not arrive within timeout_ns. KVT_MISS: there is not even
 * the first one. Release the lease with kvt_release. A lease does not expire; the statistics have
 * the age of the oldest.
 */
KVT_API enum kvt_status kvt_get(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, struct kvt_lease **lease) KVT_MUST_CHECK;
KVT_API void kvt_release(struct kvt *k, struct kvt_lease *lease); /* NULL is allowed */

/*
 * Releases a lease whose chunks are not needed again soon. Those of its chunks from number `from`
 * on that were loaded from a lower tier leave L1 at once, unless they are pinned or held by other
 * leases. So a chain that is longer than L1, got and released part by part, takes only the room of
 * the parts under way.
 */
KVT_API void kvt_release_passing(struct kvt *k, struct kvt_lease *lease, size_t from);

/* Reads all bytes under this lease, and checks that they are as they were committed. KVT_ECORRUPT:
 * some are not, and their chunks are dropped. */
KVT_API enum kvt_status kvt_verify(struct kvt *k, const struct kvt_lease *lease) KVT_MUST_CHECK;

/* Copies a chunk of a lease to `to`, which has room for `bytes`, at least the length in the chunk's
 * view. Returns the number of bytes copied. */
KVT_API uint64_t kvt_copy(const struct kvt_lease *lease, size_t index, void *to, uint64_t bytes);

/* --- putting ---------------------------------------------------------------------------------- */

/* The engine's own names of a chunk's blocks, used in events about the chunk. Optional. */
struct kvt_blocks {
	const uint8_t *hashes;  /* count * hash_bytes bytes, in the order of the blocks */
	uint32_t hash_bytes;    /* 8 (an integer, big-endian), 16 or 32 */
	uint32_t count;
	const uint8_t *parent;  /* hash_bytes bytes; NULL: the chunk begins a prompt */
	const uint32_t *tokens; /* count * block_size token ids, or NULL */
	uint32_t block_size;    /* tokens per block */
	const char *lora_name;  /* NULL: none */
	uint64_t lmcache_hash; /* bits of its hash in LMCache's controller (kvt_lmcache_hash) */
	uint32_t has_lmcache_hash; /* 0: this chunk is not reported to the controller */
	uint32_t reserved;
};

/* One chunk to put. All items of one array have the same `size`. */
struct kvt_item {
	uint32_t size; /* sizeof(struct kvt_item) */
	uint32_t tokens; /* number of its tokens; 0: config.tokens_per_chunk */
	struct kvt_key key;
	/* Key of the chunk before this one; NULL: this is the first of its chain. If the parent is
	 * stored nowhere, the chunk is refused, since no get would reach it. */
	const struct kvt_key *parent;
	uint64_t bytes;               /* > 0 */
	struct kvt_tenant tenant;
	uint64_t ttl_ns;                 /* 0: the configuration's */
	const struct kvt_blocks *blocks; /* NULL: there are no events for this chunk */
	uint32_t blocks_size; /* sizeof(struct kvt_blocks); 0: members up to lora_name are set */
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

struct kvt_reservation; /* room for chunks that are being filled; other callers do not see them */

/*
 * Reserves room for n chunks, in order, and evicts others for it. If at least one chunk got room,
 * *out and *segments are set; the segments are borrowed until commit or abort, and chunk i has
 * counts[i] of them, after those of the chunks before it. status[i] is KVT_OK, KVT_EXISTS (the
 * chunk is stored, or another put is filling it; counts[i] is 0), KVT_FULL, KVT_MISS (its parent is
 * in no tier, is not being filled, and is not in this call, or was refused in it), or KVT_EINVAL.
 * Returns KVT_OK if at least one is KVT_OK, else the status of the first. Does not wait.
 */
KVT_API enum kvt_status kvt_put_reserve(struct kvt *k, const struct kvt_item *items, size_t n,
	struct kvt_reservation **out, const struct kvt_segment **segments, uint32_t *counts,
	uint32_t *status) KVT_MUST_CHECK;

/*
 * Makes the first `ready` chunks visible, drops the others, and frees the reservation. The call
 * computes the chunks' checksums on the calling thread, unless the caller passes `checksums`, one
 * for each of the n chunks, as kvt_fill computes them.
 */
KVT_API enum kvt_status kvt_put_commit(struct kvt *k, struct kvt_reservation *reservation,
	size_t ready, const struct kvt_checksum *checksums) KVT_MUST_CHECK;
KVT_API void kvt_put_abort(struct kvt *k, struct kvt_reservation *reservation);

/* Copies bytes into segments and computes their checksum, at about the cost of the copy alone. */
KVT_API void kvt_fill(const struct kvt_segment *segments, size_t count, const void *from,
	uint64_t bytes, struct kvt_checksum *out);

/* Reserves, fills and commits one chunk. KVT_EXISTS: it is stored already; KVT_MISS: see above. */
KVT_API enum kvt_status kvt_put(
	struct kvt *k, const struct kvt_item *item, const void *bytes) KVT_MUST_CHECK;

/* --- other verbs ------------------------------------------------------------------------------ */

/* Begins to load the prefix of a chain into L1, at most as much as an eighth of L1. Never waits;
 * chunks for which there is no room are not loaded. */
KVT_API enum kvt_status kvt_prefetch(
	struct kvt *k, const struct kvt_key *keys, size_t n) KVT_MUST_CHECK;

/* Pins chunks in every tier that has them, so that they are not evicted (their TTL still applies),
 * or unpins them. *changed (NULL is allowed) is the number of chunks found. One unpin ends any
 * number of pins. */
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
/* Erases all chunks of a fingerprint. The handle's own fingerprint: empties its store. Another one:
 * removes the store with that fingerprint under the same path and of the same rank (KVT_MISS: there
 * is none; KVT_ELOCKED: another process owns it). With a shared tier all processes of that
 * fingerprint are informed, also the owner of such a store; KVT_OK promises what an erase of a
 * tenant does (above). */
KVT_API enum kvt_status kvt_erase_version(struct kvt *k, const struct kvt_fingerprint *fingerprint,
	uint64_t timeout_ns, size_t *erased) KVT_MUST_CHECK;

/* Selects the chunks to erase: those that match every member that is set, at least one. */
struct kvt_which {
	uint32_t size;                   /* sizeof(struct kvt_which), set by the caller */
	uint32_t dry_run;                /* only count */
	const struct kvt_tenant *tenant; /* NULL: any */
	const struct kvt_fingerprint
		*fingerprint; /* NULL: any; chunks match only that of the handle */
	const struct kvt_key *keys; /* NULL: any */
	size_t key_count;           /* up to 4096 */
};

enum kvt_counted {
	KVT_COUNTED_NO_TIER =
		0, /* the tier is not configured, or not open (kvt_stats has the reason) */
	KVT_COUNTED = 1,
	KVT_COUNTED_UNKNOWN =
		2, /* erased, but not counted: other processes store into this tier, too */
};

/* How many chunks kvt_erase_which found in each tier when it began. */
struct kvt_erased {
	uint32_t size; /* sizeof(struct kvt_erased), set by the caller */
	uint32_t reserved;
	struct {
		uint32_t counted; /* enum kvt_counted */
		uint32_t reserved;
		uint64_t chunks, bytes; /* bytes of the chunks themselves, without overhead */
	} tiers[KVT_TIER_COUNT];
};

/*
 * As kvt_erase, for the chunks that `which` selects. A key also selects the chunk's ends
 * (kvt_key_ends), which count as another object. If keys and a tenant are set, chunks are kept
 * whose tenant no tier knows; shared tiers are asked about the keys first. *out is set with KVT_OK
 * and KVT_MISS (the chunks cannot be read any more, but that is not yet known to be durable), and
 * with other results of an erase that had begun. Chunks of a shared tier cannot be counted.
 * KVT_EINVAL: no member of `which` is set.
 */
KVT_API enum kvt_status kvt_erase_which(struct kvt *k, const struct kvt_which *which,
	uint64_t timeout_ns, struct kvt_erased *out) KVT_MUST_CHECK;

/* Sets limits for one tenant, which replace those of the configuration (tenant_l1_bytes,
 * tenant_nvme_bytes); 0: not limited. They hold from the next put on, for the life of the handle; a
 * tenant above its limit loses its oldest chunks with its next put. KVT_FULL: 4096 tenants have
 * limits already; KVT_ENOMEM. */
KVT_API enum kvt_status kvt_limit_tenant(struct kvt *k, const struct kvt_tenant *tenant,
	uint64_t l1_bytes, uint64_t nvme_bytes) KVT_MUST_CHECK;

/* Reports that the engine computed `tokens` tokens in `ns`. From this rate the library decides
 * which chunks are worth fetching. */
KVT_API void kvt_report_prefill(struct kvt *k, uint64_t tokens, uint64_t ns);

/* --- asynchronous operations ------------------------------------------------------------------ */

enum kvt_op_kind { KVT_OP_GET = 1, KVT_OP_ERASE = 2, KVT_OP_DRAIN = 3, KVT_OP_FIND = 4 };

struct kvt_completion {
	uint64_t op;   /* the number that the begin function returned */
	uint64_t user; /* the value that the caller passed to the begin function */
	uint32_t kind; /* enum kvt_op_kind */
	uint32_t status;
	uint64_t count; /* number of chunks got, erased or found */
};

/* Begins a kvt_get. Its completion has the status KVT_OK or KVT_MISS; after KVT_OK, kvt_get_take
 * returns the lease (once). KVT_BUSY: config.ops operations are under way. A lease that is never
 * taken is released by kvt_close. */
KVT_API enum kvt_status kvt_get_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_get_take(
	struct kvt *k, uint64_t op, struct kvt_lease **lease) KVT_MUST_CHECK;
/* Begins a kvt_find. Its completion has the number of chunks found. From then on kvt_lookup knows
 * their tiers, for as long as answers are believed (l2_seen_ns). */
KVT_API enum kvt_status kvt_find_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_erase_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_drain_begin(
	struct kvt *k, uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;

/* Ends an operation early, with KVT_ECANCELED, unless it is complete. KVT_MISS: no such op. */
KVT_API enum kvt_status kvt_cancel(struct kvt *k, uint64_t op) KVT_MUST_CHECK;

/* A descriptor that becomes readable when completions wait, and stays so until kvt_poll has taken
 * them all. The handle owns it. */
KVT_API int kvt_eventfd(struct kvt *k);
KVT_API size_t kvt_poll(struct kvt *k, struct kvt_completion *out, size_t max);

/* --- events, statistics, metrics -------------------------------------------------------------- */

enum kvt_event_kind { KVT_EVENT_STORED = 1, KVT_EVENT_REMOVED = 2, KVT_EVENT_CLEARED = 3 };

/* A change in a tier's contents, by the engine's block hashes. Arrays are borrowed until the next
 * call of kvt_events on this handle. */
struct kvt_event {
	uint64_t sequence; /* increases by one with each event; a gap means that events were lost */
	uint32_t kind;
	uint32_t tier;
	const uint8_t *hashes; /* count * hash_bytes */
	uint32_t hash_bytes;
	uint32_t count;
	const uint8_t *parent;  /* set for stored chunks only; NULL: the chunk begins a prompt */
	const uint32_t *tokens; /* NULL but in the event of the first tier that stores the chunk */
	uint32_t block_size;
	const char *lora_name;
};

/* Takes up to `max` events, the oldest first. One thread at a time. */
KVT_API size_t kvt_events(struct kvt *k, struct kvt_event *out, size_t max);

#define KVT_REASON_BYTES 160

struct kvt_tier_stats {
	uint32_t state;  /* enum kvt_tier_state */
	uint32_t reserved;
	char mode[32];   /* "anon", "hugetlb", "uring", "uring-plain", "threads", ... */
	char reason[KVT_REASON_BYTES]; /* why the tier works in this mode, or why it is not open */
	uint64_t capacity, used, payload; /* bytes: the limit; used; those of the chunks alone */
	uint64_t chunks;
	uint64_t metadata_bytes; /* memory used by the index and the policy */
	uint64_t ghost_bytes;    /* memory that some policies use for the names of evicted chunks */
	uint64_t name_bytes;     /* memory used for the engine's names of chunks, for events */
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
	uint64_t not_worth_fetching; /* chunks not fetched because computing them is faster */
	uint64_t events, events_lost;
	uint64_t prefill_tokens_per_second; /* learned; 0: unknown */
	/* calls of kvt_find and kvt_find_begin; chunks and hits count as lookups' */
	uint64_t finds;
	/* questions to shared tiers, the chunks in them, and the chunks that were there */
	uint64_t probes, probe_chunks, probe_hits;
	uint64_t lock_refusals; /* times that another process owned the NVMe store */
	uint64_t put_blended;   /* puts that were refused because of KVT_ITEM_BLENDED */
	/* For each tier: chunks that were evicted, and chunks that were refused, because their
	 * tenant was at its limit. If L2 is kvtierd, which enforces the limits itself, only
	 * refusals of chunks that this handle sent are counted. */
	uint64_t tenant_evictions[KVT_TIER_COUNT], tenant_refusals[KVT_TIER_COUNT];
	/* For each shared tier: number of erases of tenants by other processes that this handle has
	 * applied; an erase of all tenants counts as one. */
	uint64_t erased_elsewhere[KVT_TIER_COUNT];
	/* How often a shared tier lost its table of generations, and so all its chunks. */
	uint64_t tables_lost;
	uint64_t tables_refused; /* questions about that table that a shared tier refused */
	uint64_t put_orphans; /* puts refused because the chunk's parent is stored nowhere */
};
KVT_API enum kvt_status kvt_stats(struct kvt *k, struct kvt_stats *out) KVT_MUST_CHECK;

/* Returns all metrics in Prometheus' text format. Those that mean the same as metrics of LMCache
 * have their names, lmcache:*. Free *text with kvt_text_free. */
KVT_API enum kvt_status kvt_metrics(struct kvt *k, char **text) KVT_MUST_CHECK;

/* Returns the handle's recent events: gets with their hits and the reason of a miss, requests to
 * tiers, puts, dropped stores. First come the newest `most` events in the order of their ends, then
 * as many slow, incomplete or failed ones; each is one line of JSON, which `kvtier trace -` reads.
 * A chunk is named by the first 4 bytes of its key. Free *text with kvt_text_free. KVT_ENOTSUP: no
 * trace is kept. */
KVT_API enum kvt_status kvt_trace(struct kvt *k, size_t most, char **text) KVT_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
