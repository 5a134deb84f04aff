/*
 * kvtier.h - a tiered cache for the KV blocks of language models, as a C library.
 *
 * A chunk is a run of tokens' keys and values, some KiB to some hundred MiB, named by a 32-byte
 * key. Chunks form chains: a chunk is of use only if all chunks before it in its prompt are there
 * too. The library keeps chunks in CPU memory (L1) and on NVMe, moves them between the two, and
 * answers how long a prefix of a chain it holds and what fetching it would cost.
 *
 * What it promises. A get gives the bytes that were committed under that key, or a miss; never
 * other bytes. Whatever comes back from a file is checked against the key, the fingerprint and a
 * checksum (or an AES-GCM tag) first. Nothing is visible before its commit. Every call that may
 * wait takes a limit, and a limit that passes is a miss. Losing a chunk is allowed; the engine
 * computes it again.
 *
 * Threads. Every function may be called from any thread at any time, except where it says so;
 * kvt_open is to be called after the process's last fork. A handle in a forked child is refused
 * with KVT_EFORK by every function but kvt_close, which then frees nothing that is shared.
 * Callbacks of the caller's (log, clock, I/O layer) run on the library's threads, hold none of its
 * locks, and must not call back into the library.
 *
 * Ownership. Pointers that a call takes are read during the call only, unless it says "borrowed
 * until". What a call hands out is released by the one function named at it, exactly once.
 *
 * Growth. Structs that a caller fills begin with their own size, set by an init function; members
 * are only ever added at the end. Results leave through out-parameters, untouched on failure.
 * Times are in nanoseconds, sizes in bytes.
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

/* What a call may say. Values are part of the ABI. */
enum kvt_status {
	KVT_OK = 0,
	KVT_MISS = 1,       /* not there, or not within the time that was given */
	KVT_EXISTS = 2,     /* a put of a chunk that is there already: nothing to do */
	KVT_FULL = 3,       /* no room, and nothing that may be evicted for it */
	KVT_BUSY = 4,       /* a bound on what is under way is reached: try later or do without */
	KVT_EINVAL = 5,     /* an argument is wrong */
	KVT_ENOMEM = 6,     /* an allocation failed */
	KVT_EIO = 7,        /* the operating system refused; the log has the cause */
	KVT_ECORRUPT = 8,   /* read back wrong: dropped, counted, a miss for callers of get */
	KVT_EFORMAT = 9,    /* a store of another or a newer format: left untouched */
	KVT_ELOCKED = 10,   /* another process owns the store; the log has its pid */
	KVT_EFORK = 11,     /* the handle was opened before a fork */
	KVT_ECANCELED = 12, /* the operation was cancelled, or the handle is closing */
	KVT_ENOTSUP = 13,   /* this build or this machine cannot */
};

/* A few words for people, never NULL, for any value. Static. */
KVT_API const char *kvt_status_text(enum kvt_status status);

/* Version of the library, "MAJOR.MINOR.PATCH". Static. */
KVT_API const char *kvt_version(void);

/* --- names ------------------------------------------------------------------------------------ */

#define KVT_KEY_BYTES 32

/* Storage key of a chunk. Compared whole, never in part. */
struct kvt_key {
	uint8_t bytes[KVT_KEY_BYTES];
};

/* Hash of all that decides what a chunk's bytes mean: model, weights, layout, dtype, sizes. */
struct kvt_fingerprint {
	uint8_t bytes[32];
};

/* Hash of a cache salt; all zero: the tenant without one. */
struct kvt_tenant {
	uint8_t bytes[16];
};

/* What a storage key is made of. */
struct kvt_key_parts {
	uint32_t size; /* sizeof(struct kvt_key_parts) */
	uint32_t rank; /* which of the parallel ranks; 0 where one holds for all */
	/* The engine's hash of the chunk's last block: salt, LoRA, images inside. */
	const void *chain_id;
	size_t chain_id_bytes; /* 16 to 64; shorter ones are not cryptographic and are refused */
	/* "sha256_cbor", ...: same id under another recipe is another key. */
	const char *hash_recipe;
	const char *hash_seed;   /* PYTHONHASHSEED or NULL */
	struct kvt_fingerprint fingerprint;
	struct kvt_tenant tenant;
};

/* SHA-256 over the domain "kvtier key 1" and every part with its length; two of its bytes are the
 * tenant's, by which an erase of the tenant reaches the chunk in shared tiers. Keys that are made
 * otherwise are not reached there. KVT_EINVAL. */
KVT_API enum kvt_status kvt_key_make(
	const struct kvt_key_parts *parts, struct kvt_key *out) KVT_MUST_CHECK;

/* Key of a chunk's second object, its ends: models that mix windows and full attention store the
 * last blocks of each window apart. SHA-256 over the domain "kvtier ends 1" and the chunk's key.
 * `out` may be `key`. */
KVT_API void kvt_key_ends(const struct kvt_key *key, struct kvt_key *out);

/* Chain id where the engine gives none: SHA-256 over the parent's (NULL: first) and the tokens. */
KVT_API void kvt_chain_id(const uint8_t parent[32], const uint32_t *tokens, size_t count,
	uint8_t out[32]);

/* First 16 bytes of SHA-256 over a domain and the salt; len 0 gives the zero tenant. */
KVT_API void kvt_tenant_of(const void *salt, size_t len, struct kvt_tenant *out);

struct kvt_config;

/*
 * How an LMCache controller, by config's section `controller`, names a prompt's chunks: a chunk's
 * hash is computed from that of the chunk before, for the first chunk from *state, and from its
 * tokens, 1 to 8192 of them. KVT_MISS: no controller is configured; KVT_ENOTSUP: the hash cannot be
 * computed outside LMCache (`builtin` without a seed). Cost: about a microsecond for 256 tokens.
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

/* NULL members of a configuration mean the machine's own. Borrowed until kvt_close. */
struct kvt_clock {
	int64_t (*now_ns)(void *self); /* monotonic */
	int64_t (*wall_ns)(void *self); /* since 1970; TTLs begin with it, and go on by now_ns */
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
 * Everything that can be set. Each member from `fingerprint` to `controller_none_hash`, and
 * from `nvme_lock_wait_ns` on, has one key in the YAML form (l1_capacity: l1.capacity; kvtier
 * reference prints them); a test holds the two together. Texts are borrowed during kvt_open only.
 * "automatic" is what kvtier size would say: from the cgroup's limit, free memory, /dev/shm, disk.
 */
struct kvt_config {
	uint32_t size; /* sizeof(struct kvt_config), by kvt_config_init */
	uint32_t abi;  /* KVT_ABI, likewise */

	struct kvt_fingerprint fingerprint; /* chunks of another one are never seen */
	uint32_t rank;                      /* names the store's folder: PATH/FINGERPRINT/RANK */
	uint32_t threads;                   /* enum kvt_threads */

	/* l1: chunks in CPU memory */
	uint64_t l1_capacity;    /* bytes of the arena, a hard limit; 0: automatic */
	/* "anon", "hugetlb", "shm:NAME", "fd:N" (an open file, the caller's). */
	const char *l1_backing;
	uint32_t l1_lock;        /* mlock the arena */
	int32_t l1_numa_node;    /* -1: where its first users run */
	/* "lru", "lfu", "fifo", "arc", "s3fifo", "wtinylfu", "cost", "default". */
	const char *l1_policy;
	uint32_t l1_max_chunks;  /* entries; 0: from the capacity */
	uint64_t l1_scrub_rate;  /* bytes a second that are checked in the background; 0: none */
	uint64_t l1_scrub_ns;    /* least time of a pass over all of L1 */
	double l1_staging_share; /* of the arena, kept for loads from below, 0 to 0.5 */

	/* nvme: chunks in local files */
	const char *nvme_path; /* a folder; NULL or "": no such tier */
	uint64_t nvme_capacity; /* bytes on disk, headers included; 0: automatic */
	const char *nvme_policy;
	uint32_t nvme_max_chunks; /* 0: from the capacity */
	const char *nvme_io;      /* "auto", "uring", "threads" */
	uint32_t nvme_depth;      /* operations under way at once */
	uint64_t nvme_sync_bytes; /* a crash may lose at most this much of what was written ... */
	uint64_t nvme_sync_ns;    /* ... or this long */
	uint32_t nvme_direct;     /* ask for O_DIRECT where the file system has it */

	/* l2: chunks that are shared with other processes and machines */
	/* "redis://host:6379", "sagemaker-hyperpod://host:9200", ...; "": none. */
	const char *l2_url;
	const char *l2_username;
	const char *l2_password_file; /* its first line; "": the URL's, or none */
	const char *l2_service;       /* Sentinel's name of the master */
	const char *l2_tls_ca;        /* PEM; "": those that the system trusts */
	const char *l2_tls_certificate;
	const char *l2_tls_key;
	uint32_t l2_connections;      /* to each server */
	uint64_t l2_inflight;         /* bytes under way, both directions */
	uint64_t l2_connect_ns;       /* most for connecting, handshake and login */
	uint64_t l2_deadline_ns;      /* most for one operation */
	uint64_t l2_part_bytes;       /* longer values are split */
	uint64_t l2_ttl_ns;           /* of values; 0: none */
	uint64_t l2_seen_ns;          /* how long an answer "it is there" is believed */
	uint64_t l2_missing_ns;       /* ... and "it is not" */
	const char *l2_bucket;        /* tiered storage */
	const char *l2_segment;       /* tiered storage: name of the daemon's shared memory */
	uint64_t l2_lease_ns;         /* tiered storage: asked for with each lease */

	/* protect */
	const char *protect_keys; /* file of key ids and keys; NULL or "": plain with checksums */
	uint64_t ttl_ns;          /* since a chunk's last use; 0: none */
	uint64_t tenant_l1_bytes; /* most that one tenant may hold; 0: all */
	uint64_t tenant_nvme_bytes;

	/* control */
	/* Bytes on their way to lower tiers; the oldest goes first; 0: auto. */
	uint64_t store_inflight;
	uint64_t load_inflight;   /* bytes on their way up */
	uint32_t ops;             /* operations begun and not yet taken */
	uint32_t fetch_when_slower; /* fetch even where recomputing would be faster */
	double prefill_tokens_per_second; /* before the engine has reported; 0: unknown, fetch */
	uint32_t tokens_per_chunk;
	uint32_t breaker_failures;   /* in a row, until a tier is left alone */
	uint64_t breaker_open_ns;    /* first pause; doubles */
	uint64_t breaker_open_max_ns;

	/* events */
	uint32_t events_queue;        /* events kept for kvt_events; the oldest is lost first */
	uint32_t tenant_metrics;      /* protect: tenants that kvt_metrics names, 0 to 64 */
	const char *events_publish;   /* ZeroMQ address, "tcp://127.0.0.1:5557"; NULL or "": none */
	const char *events_replay;    /* ZeroMQ address of the replay socket */
	const char *events_topic;
	uint64_t events_replay_bytes; /* kept for replay */

	/* controller: LMCache's; the cache reports its chunks to it as an LMCache worker does */
	/* ZeroMQ address of its events, "tcp://HOST:8300"; "": none. */
	const char *controller_pull;
	const char *controller_reply;     /* ... of its requests; "": a controller before 0.3.12 */
	const char *controller_heartbeat; /* ... of its heartbeats; "": what its answer names */
	const char *controller_instance;  /* instance id; "": one is made */
	const char *controller_ip;        /* that it shall reach this worker at; "": found out */
	const char *controller_bind;      /* where commands are awaited; "": controller_ip */
	const char *controller_ports;     /* of the command sockets, one for each rank; "": any */
	uint64_t controller_heartbeat_ns;       /* between heartbeats; 0: none */
	uint64_t controller_heartbeat_delay_ns; /* before the first */
	uint64_t controller_answer_ns;          /* an answer later than this is none */
	uint64_t controller_sync_delay_ns;      /* before a full sync, at random up to this */
	uint32_t controller_sync_batch;         /* keys of one message */
	uint32_t controller_queue;              /* changes that wait to be sent */
	uint32_t controller_max_chunks;         /* that are named to it */
	uint64_t controller_pin_ns;             /* how long its pins hold */
	uint32_t controller_chunk_size;         /* tokens; LMCache's chunk_size */
	int32_t controller_worker;              /* its number, and its port's; -1: rank */
	const char *controller_hash;            /* LMCache's pre_caching_hash_algorithm */
	const char *controller_hash_seed;       /* PYTHONHASHSEED; "unset": it is not set */
	const char *controller_none_hash;       /* NONE_HASH as a number; "": from the seed */

	/* surroundings; NULL: the machine's own */
	const struct kvt_clock *clock;
	const struct kvt_io_layer *io;
	void (*log)(void *self, uint32_t level, const char *line); /* NULL: standard error */
	void *log_self;

	/* The library's: what kvt_config_read made; NULL if nothing. */
	struct kvt_config_texts *texts;

	/* nvme, further: how long kvt_open waits for a store that another process owns. After that
	 * the cache works without it and asks for it again, as long as it is open. */
	uint64_t nvme_lock_wait_ns;

	/* node: engines of a node share what they keep, in kvtierd's memory and on its NVMe */
	const char *node_share;   /* "never", "auto" (where it answers at kvt_open), "always" */
	const char *node_url;     /* "kvtierd://HOST:PORT" */
	const char *node_segment; /* name of its shared memory */

	/* fragments: cached text that is not a prefix (kvtier_fragments.h). The library itself
	 * needs none of these: engines' connectors and runners read them by
	 * kvt_fragments_settings */
	uint32_t fragments_enabled;
	const char *fragments_cut;       /* "separator", "content" */
	const char *fragments_separator; /* text whose tokens end a fragment */
	uint32_t fragments_min_tokens;   /* less is not blended into a prompt */
	uint32_t fragments_average_tokens; /* of a cut by content */
	uint32_t fragments_max_tokens;     /* longer ones are cut */
	double fragments_recompute_share;  /* of a fragment's tokens, 0 to 0.3 */
	uint32_t fragments_first_tokens;   /* of each fragment, computed again first of all */
	uint32_t fragments_check_layer;    /* whose keys and values say which tokens deviate */

	/* protect, further: most that one tenant may hold in Redis; 0: all */
	uint64_t tenant_l2_bytes;

	/* node, further: caches of one engine on this machine,
	 * which have equal parts of automatic sizes */
	uint32_t node_ranks;

	/* control, further: events that kvt_trace remembers; 0: nothing is traced */
	uint32_t trace_events;
};

/* Fills in defaults; `size` is sizeof(struct kvt_config) as the caller was compiled. */
KVT_API void kvt_config_init(struct kvt_config *config, size_t size);

/*
 * Reads YAML over what *config holds. Every mistake is a line "NAME:LINE:COLUMN: KEY: found ...,
 * expected ..." in a text that goes to *report (NULL if there was none; free it with
 * kvt_text_free). A key with a mistake keeps its value, so that the library runs with what is
 * right: KVT_EINVAL says that there were mistakes, not that *config is unusable. Texts that
 * *config then points at belong to *config until kvt_config_finish, which sets all texts to their
 * defaults. report may be NULL. KVT_ENOMEM: *config is as it was.
 */
KVT_API enum kvt_status kvt_config_read(struct kvt_config *config, const char *name,
	const char *yaml, size_t len, char **report) KVT_MUST_CHECK;
KVT_API void kvt_config_finish(struct kvt_config *config);
KVT_API void kvt_text_free(char *text);

/* Where LMCache's configuration is taken from. */
struct kvt_lmcache_source {
	uint32_t size;    /* sizeof(struct kvt_lmcache_source) */
	uint32_t rank;    /* which of the engine's ranks asks; chooses among several folders */
	uint32_t ranks;   /* of the engine on this node, for what is said about sizes; 0: unknown */
	uint32_t reserved;
	const char *path; /* the file; NULL: what LMCACHE_CONFIG_FILE names, "": none */
	/* "NAME=VALUE", ended by NULL, as environ; of two of one name the later counts.
	 * LMCACHE_CHUNK_SIZE and lmcache.chunk_size are both taken for LMCache's chunk_size. NULL:
	 * none. */
	const char *const *variables;
};

/* What LMCache's configuration becomes. Texts belong to it until kvt_lmcache_finish. */
struct kvt_lmcache {
	uint32_t size; /* sizeof(struct kvt_lmcache), set by the caller */
	uint32_t reserved;
	char *settings;  /* YAML for kvt_config_read, and JSON at once; it may hold a password */
	/* JSON, of those that were given: chunk_size, min_retrieve_tokens (tokens),
	 * save_decode_cache, save_unfull_chunk, lookup_timeout_ms, load_timeout_ms. */
	char *connector;
	char *mistakes;  /* lines "FILE:LINE:COLUMN: KEY: text" or "VARIABLE: text"; "" if none */
	char *notes;     /* likewise: what is ignored, or means something else here */
};

/*
 * Reads LMCache's configuration as it is: a YAML file and variables that go over it
 * (cache/python/LMCACHE.md has each key). Sizes in it are of one worker and become those of one
 * rank. A key with a mistake, or one that cannot be had, has LMCache's default, and the rest
 * applies: KVT_EINVAL says that there were such, *out is filled as with KVT_OK. KVT_MISS: there is
 * no such configuration, neither file nor variable. KVT_ENOMEM. Opens the file and nothing else.
 */
KVT_API enum kvt_status kvt_lmcache_read(
	const struct kvt_lmcache_source *source, struct kvt_lmcache *out) KVT_MUST_CHECK;
KVT_API void kvt_lmcache_finish(struct kvt_lmcache *out);

/* --- life ------------------------------------------------------------------------------------- */

struct kvt; /* one cache: its memory, its files, its threads */

/*
 * Opens a cache. A tier that cannot be had (wrong folder, foreign format, locked by another
 * process, no memory for it) is left out with a line in the log and a reason in kvt_stats; the
 * call fails only if no tier can be had at all, or with KVT_EINVAL and KVT_ENOMEM. A store on disk
 * that is locked, full, read-only or not this user's is tried again as long as the handle is open.
 * Waits up to 10 s for another owner of the store to let go of it.
 */
KVT_API enum kvt_status kvt_open(const struct kvt_config *config, struct kvt **out) KVT_MUST_CHECK;

/* Waits until all that was committed is stored below. KVT_MISS: not within timeout_ns. */
KVT_API enum kvt_status kvt_drain(struct kvt *k, uint64_t timeout_ns) KVT_MUST_CHECK;

/*
 * Ends a cache; waits for I/O under way, not for stores that wait. Leases and reservations must
 * have been released. NULL is allowed. To be called once, when no other call is running.
 */
KVT_API void kvt_close(struct kvt *k);

/*
 * KVT_THREADS_CALLER only: does what is due (timers, I/O, controllers) and returns how many things
 * it did; 0: nothing is left to do now. *next_ns (NULL is allowed): when it wants to be called
 * again, INT64_MAX: at the next call of another function. One thread at a time.
 */
KVT_API size_t kvt_step(struct kvt *k, int64_t *next_ns);

/* Weights changed: all chunks become unreachable at once, in every tier, also after a crash.
 * KVT_MISS as kvt_erase. */
KVT_API enum kvt_status kvt_reset(struct kvt *k) KVT_MUST_CHECK;

/*
 * As kvt_reset, but shared tiers keep what they hold: other replicas, whose weights did not change,
 * go on using it. Memory and local files are empty when this returns. For a caller that makes its
 * keys from another fingerprint from now on (struct kvt_key_parts), since a key from before would
 * still be found in a shared tier. KVT_MISS: not durable within timeout_ns; a crash now may bring
 * chunks in local files back.
 */
KVT_API enum kvt_status kvt_forget(struct kvt *k, uint64_t timeout_ns) KVT_MUST_CHECK;

/* --- asking ----------------------------------------------------------------------------------- */

struct kvt_lookup {
	size_t hits;  /* chunks from the chain's beginning that are in some tier */
	size_t worth; /* of these, how many are worth fetching: the rest computes faster */
	uint64_t fetch_ns;     /* estimate for the `worth` chunks */
	uint64_t recompute_ns; /* estimate for the same tokens; 0: rate unknown */
};

/*
 * How much of a chain is there: keys in the order of the prompt. tiers (NULL is allowed) receives
 * for each of the n keys the fastest tier that holds it or KVT_TIER_NONE; after the first missing
 * chunk all are KVT_TIER_NONE. Never waits, takes no lease, does not count as a use.
 */
KVT_API enum kvt_status kvt_lookup(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint8_t *tiers, struct kvt_lookup *out) KVT_MUST_CHECK;

/*
 * As kvt_lookup, but asks shared tiers, too, about what they are not known to have or not to have,
 * for at most timeout_ns. What was not answered by then counts as missing.
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
	uint8_t tier; /* where it was found */
};

/* A hold on chunks in L1: as long as it lasts they stay where they are, unchanged. */
struct kvt_lease {
	const struct kvt_view *views; /* one per chunk that was got, in the chain's order */
	size_t count;
	const struct kvt_segment *segments;
	size_t segment_count;
};

/*
 * Gets the longest prefix of a chain that is there and worth it, in one piece of waiting: chunks
 * below L1 are loaded first. KVT_OK: *lease has 1 to n chunks, fewer than n where one is missing,
 * failed its check or did not come within timeout_ns. KVT_MISS: not even the first.
 * Release with kvt_release. A lease does not expire; statistics contain the age of the oldest.
 */
KVT_API enum kvt_status kvt_get(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, struct kvt_lease **lease) KVT_MUST_CHECK;
KVT_API void kvt_release(struct kvt *k, struct kvt_lease *lease); /* NULL is allowed */

/*
 * Releases a lease whose chunks are not wanted again soon: those from number `from` on that a tier
 * below had to bring leave L1 at once, unless they are pinned or held by others. So a chain that is
 * longer than L1, got and released part by part, takes the room of the parts under way and no more.
 */
KVT_API void kvt_release_passing(struct kvt *k, struct kvt_lease *lease, size_t from);

/* Is every byte under this lease still what was committed? Reads them all. KVT_ECORRUPT: no, and
 * the chunks in question are dropped. */
KVT_API enum kvt_status kvt_verify(struct kvt *k, const struct kvt_lease *lease) KVT_MUST_CHECK;

/* Copies a chunk of a lease; `bytes` must be at least the view's. Returns the bytes copied. */
KVT_API uint64_t kvt_copy(const struct kvt_lease *lease, size_t index, void *to, uint64_t bytes);

/* --- putting ---------------------------------------------------------------------------------- */

/* Engine's own names of a chunk's blocks, for the events about it. Optional. */
struct kvt_blocks {
	const uint8_t *hashes;  /* count * hash_bytes, in order */
	uint32_t hash_bytes;    /* 8 (an integer, big-endian) or 16 or 32 */
	uint32_t count;
	const uint8_t *parent;  /* hash_bytes; NULL: the chunk begins a prompt */
	const uint32_t *tokens; /* count * block_size, or NULL */
	uint32_t block_size;    /* tokens per block */
	const char *lora_name;  /* NULL: none */
	/* LMCache's hash of the chunk, by which its controller knows it (kvt_lmcache_hash);
	 * its bits. */
	uint64_t lmcache_hash;
	uint32_t has_lmcache_hash; /* 0: the controller does not hear of this chunk */
	uint32_t reserved;
};

/* One chunk to put. In an array of them all have the same size. */
struct kvt_item {
	uint32_t size; /* sizeof(struct kvt_item) */
	uint32_t tokens; /* of the prompt; 0: the configuration's tokens_per_chunk */
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

/* Its bytes are not exact for its key: fragments of other texts were blended into it
 * (kvtier_fragments.h). Such an item is refused with KVT_EINVAL, so that what was blended is never
 * found as exact. */
#define KVT_ITEM_BLENDED 1u

/* XXH3-128 of a chunk's bytes. */
struct kvt_checksum {
	uint64_t low, high;
};

struct kvt_reservation; /* room for chunks that are being filled; invisible to everybody else */

/*
 * Room for n chunks, in order; evicts for it. *out and *segments (borrowed until commit or abort;
 * chunk i has counts[i] of them, one after another) are set if at least one chunk got room.
 * status[i]: KVT_OK, KVT_EXISTS (there or being filled by another put: counts[i] is 0), KVT_FULL,
 * KVT_MISS (its parent is in no tier, not being filled, not in this call, or was refused just now),
 * KVT_EINVAL. Returns KVT_OK if any is KVT_OK, else the first one's. Does not wait.
 */
KVT_API enum kvt_status kvt_put_reserve(struct kvt *k, const struct kvt_item *items, size_t n,
	struct kvt_reservation **out, const struct kvt_segment **segments, uint32_t *counts,
	uint32_t *status) KVT_MUST_CHECK;

/*
 * Makes the first `ready` chunks visible and drops the rest; takes the reservation. Their
 * checksums are made here, on the calling thread, unless checksums (n of them, one per chunk as
 * kvt_fill gave them) are handed in.
 */
KVT_API enum kvt_status kvt_put_commit(struct kvt *k, struct kvt_reservation *reservation,
	size_t ready, const struct kvt_checksum *checksums) KVT_MUST_CHECK;
KVT_API void kvt_put_abort(struct kvt *k, struct kvt_reservation *reservation);

/* Copies bytes into segments and makes their checksum on the way, at about the cost of the copy. */
KVT_API void kvt_fill(const struct kvt_segment *segments, size_t count, const void *from,
	uint64_t bytes, struct kvt_checksum *out);

/* Reserve, fill, commit of one chunk. KVT_EXISTS: was there already; KVT_MISS as above. */
KVT_API enum kvt_status kvt_put(
	struct kvt *k, const struct kvt_item *item, const void *bytes) KVT_MUST_CHECK;

/* --- other verbs ------------------------------------------------------------------------------ */

/* Starts bringing the prefix of a chain up to L1, as far as an eighth of L1 holds it. Never waits;
 * what has no room is not brought. */
KVT_API enum kvt_status kvt_prefetch(
	struct kvt *k, const struct kvt_key *keys, size_t n) KVT_MUST_CHECK;

/* Pins chunks against eviction in every tier where they are (TTL still holds), or unpins them.
 * *changed (NULL is allowed): how many were there. Pins do not add up. */
KVT_API enum kvt_status kvt_pin(
	struct kvt *k, const struct kvt_key *keys, size_t n, size_t *changed) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_unpin(
	struct kvt *k, const struct kvt_key *keys, size_t n, size_t *changed) KVT_MUST_CHECK;

/* Once an erase returns KVT_OK, nothing of it can be read through this handle any more, also after
 * a crash; leases that are held go on until their release. Of a tenant or version no other process
 * reads it either, once l2.seen_time (10 s at most) is over; of keys nothing is promised for
 * others. KVT_EIO: a shared tier did not confirm it, nothing is promised. Waits for a durable
 * record, up to timeout_ns: KVT_MISS: unreadable now, but not yet known to be durable. So it is at
 * once, without a shared tier, while another process owns the store: it is erased in it once this
 * handle has it, unless this handle closes before. cache/ERASING.md has the whole. */
KVT_API enum kvt_status kvt_erase(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, size_t *erased) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_erase_tenant(struct kvt *k, const struct kvt_tenant *tenant,
	uint64_t timeout_ns, size_t *erased) KVT_MUST_CHECK;
/* Of this handle's own fingerprint: all of it. Of another one the store under the same path and of
 * the same rank is removed (KVT_MISS: there is none; KVT_ELOCKED: another process owns it); with a
 * shared tier all processes of that fingerprint hear of it, also the owner of such a store, and
 * KVT_OK is as above. */
KVT_API enum kvt_status kvt_erase_version(struct kvt *k, const struct kvt_fingerprint *fingerprint,
	uint64_t timeout_ns, size_t *erased) KVT_MUST_CHECK;

/* Which chunks to erase: those for which everything that is set here holds. At least one is. */
struct kvt_which {
	uint32_t size;                   /* sizeof(struct kvt_which) */
	uint32_t dry_run;                /* only count */
	const struct kvt_tenant *tenant; /* NULL: of any */
	const struct kvt_fingerprint
		*fingerprint;       /* NULL: any; what is not the handle's own matches nothing */
	const struct kvt_key *keys; /* NULL: any */
	size_t key_count;           /* up to 4096 */
};

enum kvt_counted {
	KVT_COUNTED_NO_TIER =
		0, /* not configured, or it could not be opened (kvt_stats says why) */
	KVT_COUNTED = 1,
	KVT_COUNTED_UNKNOWN =
		2, /* the same erase, but the tier cannot count: others store there, too */
};

/* What was found by kvt_erase_which, in each tier, when it began. */
struct kvt_erased {
	uint32_t size; /* sizeof(struct kvt_erased), set by the caller */
	uint32_t reserved;
	struct {
		uint32_t counted; /* enum kvt_counted */
		uint32_t reserved;
		uint64_t chunks, bytes; /* bytes: of the chunks' own */
	} tiers[KVT_TIER_COUNT];
};

/*
 * As kvt_erase, of what `which` describes; with a key goes that of its ends (kvt_key_ends), an
 * object that counts by itself. A key with a tenant: what no tier knows that tenant of is
 * left; shared tiers are asked about keys first. *out is set with KVT_OK and KVT_MISS (unreadable,
 * but not yet known to be durable), and with other results of an erase that had begun. Chunks of a
 * shared tier cannot be counted. KVT_EINVAL: nothing is set in `which`.
 */
KVT_API enum kvt_status kvt_erase_which(struct kvt *k, const struct kvt_which *which,
	uint64_t timeout_ns, struct kvt_erased *out) KVT_MUST_CHECK;

/* Limits of one tenant in place of the configuration's (tenant_l1_bytes, tenant_nvme_bytes); 0:
 * none. Hold from the next put on, for the life of the handle; a tenant that is above its limit
 * loses its oldest chunks with its next put. KVT_FULL: too many tenants (4096) have one;
 * KVT_ENOMEM. */
KVT_API enum kvt_status kvt_limit_tenant(struct kvt *k, const struct kvt_tenant *tenant,
	uint64_t l1_bytes, uint64_t nvme_bytes) KVT_MUST_CHECK;

/* What the engine measured: it computed `tokens` in `ns`. Decides what is worth fetching. */
KVT_API void kvt_report_prefill(struct kvt *k, uint64_t tokens, uint64_t ns);

/* --- doing it asynchronously ------------------------------------------------------------------ */

enum kvt_op_kind { KVT_OP_GET = 1, KVT_OP_ERASE = 2, KVT_OP_DRAIN = 3, KVT_OP_FIND = 4 };

struct kvt_completion {
	uint64_t op;   /* as the begin function gave it */
	uint64_t user; /* as it was given there */
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
/* As kvt_find; its completion says how many chunks there are. kvt_lookup knows the rest from then
 * on, as long as answers are believed (l2_seen_ns). */
KVT_API enum kvt_status kvt_find_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_erase_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_drain_begin(
	struct kvt *k, uint64_t timeout_ns, uint64_t user, uint64_t *op) KVT_MUST_CHECK;

/* Completes early, with KVT_ECANCELED, unless it is complete already. KVT_MISS: no such op. */
KVT_API enum kvt_status kvt_cancel(struct kvt *k, uint64_t op) KVT_MUST_CHECK;

/* Becomes readable when completions wait, and stays so until kvt_poll has taken them all. Owned by
 * the handle. */
KVT_API int kvt_eventfd(struct kvt *k);
KVT_API size_t kvt_poll(struct kvt *k, struct kvt_completion *out, size_t max);

/* --- eyes ------------------------------------------------------------------------------------- */

enum kvt_event_kind { KVT_EVENT_STORED = 1, KVT_EVENT_REMOVED = 2, KVT_EVENT_CLEARED = 3 };

/* A change of what a tier holds, in the engine's names. Arrays are borrowed until the next call
 * of kvt_events on this handle. */
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
	char reason[KVT_REASON_BYTES]; /* why this mode, or why not at all */
	uint64_t capacity, used, payload; /* bytes: allowed, occupied, of these chunks' own */
	uint64_t chunks;
	uint64_t metadata_bytes; /* memory for the index and the policy */
	uint64_t ghost_bytes;    /* memory for what was evicted, that some policies remember */
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
	uint64_t not_worth_fetching; /* chunks left to be computed, because that was faster */
	uint64_t events, events_lost;
	uint64_t prefill_tokens_per_second; /* learned; 0: unknown */
	uint64_t finds; /* kvt_find and kvt_find_begin; their chunks and hits count as lookups' */
	uint64_t probes, probe_chunks, probe_hits; /* questions to shared tiers */
	uint64_t lock_refusals; /* the store on NVMe was another process's; it is asked for again */
	uint64_t put_blended;   /* puts that were refused: KVT_ITEM_BLENDED */
	/* Of each tier, chunks that left for the limit of their tenant, and chunks that it kept
	 * out. Where L2 is kvtierd, which has the limits itself: refusals only, of what this handle
	 * sent. */
	uint64_t tenant_evictions[KVT_TIER_COUNT], tenant_refusals[KVT_TIER_COUNT];
	/* Of shared tiers: erases of tenants (and of all, as one) by other processes, which this
	 * handle then heeded. */
	uint64_t erased_elsewhere[KVT_TIER_COUNT];
	/* Tables of generations that a shared tier lost: all that was stored became cold. */
	uint64_t tables_lost;
	uint64_t tables_refused; /* questions for them that a tier refused, though it was reached */
	uint64_t put_orphans; /* puts that were refused: the chunk's parent is stored nowhere */
};
KVT_API enum kvt_status kvt_stats(struct kvt *k, struct kvt_stats *out) KVT_MUST_CHECK;

/* All metrics in Prometheus' text format, lmcache:* names where the meaning is theirs. Free with
 * kvt_text_free. */
KVT_API enum kvt_status kvt_metrics(struct kvt *k, char **text) KVT_MUST_CHECK;

/* What the handle did lately: gets with what they had and why not more, requests to tiers, puts,
 * stores that were dropped. The newest `most` events in the order in which they ended, then as
 * many of those that were slow, incomplete or failed; a line of JSON each, which `kvtier trace -`
 * reads. Chunks are named by the first 4 bytes of their keys. Free with kvt_text_free.
 * KVT_ENOTSUP: nothing is traced. */
KVT_API enum kvt_status kvt_trace(struct kvt *k, size_t most, char **text) KVT_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
