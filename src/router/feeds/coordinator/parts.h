/*
 * parts.h - the coordinator's internals. Private to this folder.
 */
#ifndef KVW_COORDINATOR_PARTS_H
#define KVW_COORDINATOR_PARTS_H

#include <netdb.h>
#include <pthread.h>

#include "base/page.h"
#include "feeds/coordinator/calls.h"
#include "feeds/coordinator/coordinator.h"
#include "feeds/coordinator/keep.h"
#include "feeds/coordinator/worth.h"
#include "routing/kvindex.h"
#include "server/connection.h"
#include "server/listen.h"

#define KVW_COORDINATOR_BODY_MOST   (UINT64_C(32) << 20)  /* of one request */
#define KVW_COORDINATOR_BODIES_MOST (UINT64_C(256) << 20) /* of all requests under way */
#define KVW_COORDINATOR_CLIENTS     4096u

/* The workers of an instance's node (struct kvw_cd_instance.user). */
struct kvw_coordinator_node {
	uint32_t *workers; /* owned, [count] */
	uint32_t count, room;
	uint32_t world;             /* ranks that hold a chunk together; 0: none is known */
	enum kvw_coverage coverage; /* as reported */
	const char *wrong;          /* as reported; static text; NULL: not reported yet */
	bool complained;            /* a line of the log names what is wrong */
	struct kvw_worth worth;     /* of prefetches at the instance */
};

/* A worker of the fleet, and the instance of its node. */
struct kvw_coordinator_worker {
	struct kvw_worker *worker; /* held; NULL: the slot has none */
	uint32_t address_version;
	char ip[NI_MAXHOST];
	struct kvw_cd_instance *instance; /* NULL: none */
	const char *lack; /* why there is none, as reported; static; NULL: not reported */
};

/* The HTTP server: clients of src/common/server on the feed's thread. */
struct kvw_coordinator_server {
	struct kvw_clients clients; /* first */
	struct kvw_server server;
	struct kvw_coordinator *coordinator;
	bool opened;     /* clients is initialized */
	uint64_t bodies; /* bytes of requests under way */
};

/* A client. */
struct kvw_coordinator_conn {
	struct kvw_conn conn; /* first */
	uint64_t claimed;     /* of kvw_coordinator_server.bodies */
};

/* Eviction from L2. */
struct kvw_coordinator_evict {
	bool busy;       /* a request is under way */
	bool stopped;    /* another process is the coordinator */
	int64_t rest_ns; /* nothing is planned before */
	uint64_t plan;   /* number of the plan that the request sends */
	int64_t complained_ns;
	char server[KVW_CE_INSTANCE_MOST + 1]; /* instance that the plan is sent to */
	uint64_t requests, failures;
};

/* The directory's file. */
struct kvw_coordinator_snapshot {
	char *path;                  /* owned; NULL: none */
	int64_t last_ns;             /* when the last one was begun */
	_Atomic int64_t interval_ns; /* as the configuration in force has it, and the next one */
	_Atomic uint64_t bytes_most;
	bool storing; /* the thread was started, and not joined yet */
	pthread_t thread;
	int fd;            /* the thread's, while it runs */
	_Atomic bool done; /* by the thread: it ends */
	_Atomic uint64_t written, failed;
};

#define KVW_COORDINATOR_FETCHES 64u /* prompts under way */

/* Prefetches for chosen workers. */
struct kvw_coordinator_prefetch {
	LIST_HEAD(, kvw_coordinator_fetch) fetches; /* that servers are asked about */
	_Atomic uint32_t count;                     /* under way, from any thread on */
	_Atomic uint64_t skipped;
	_Atomic uint32_t number; /* of the last prompt that was looked at */
	/* The last first token of such a prompt, by the lowest bits of its number: the number, and
	 * then the time in milliseconds, 32 bits each. */
	_Atomic uint64_t firsts[KVW_COORDINATOR_FETCHES];
	uint64_t begun, failures, keys, vain, rested;
};

#define KVW_COORDINATOR_FIRSTS 64u

/* Whether entries without token ids have hashes that kvway computes, too. */
struct kvw_coordinator_hashes {
	bool known;        /* one was recognized */
	_Atomic bool asks; /* none was, and there are such entries; read by any thread */
	uint64_t count;    /* of the prompts sent meanwhile, the last of which are here: */
	uint8_t firsts[KVW_COORDINATOR_FIRSTS][KVW_BLAKE3_BYTES]; /* hashes of their first chunks */
};

/* The listing of a server's L2. */
struct kvw_coordinator_listing {
	bool asking;
	int64_t due_ns;                          /* of the next request */
	char instance[KVW_CE_INSTANCE_MOST + 1]; /* that is asked */
	char path[2048];                         /* of the next page; "": none is under way */
	char listed[KVW_CE_BACKEND_MOST + 1];    /* the shared pool that was listed last */
	int64_t listed_ns;                       /* when; 0: never */
	uint64_t keys;                           /* that became known */
};

struct kvw_coordinator {
	struct kvw_feed *feed;
	const struct kvw_feed_deps *deps;
	struct kvw_cd *cd;
	struct kvw_ce_reader *reader;           /* owned */
	struct kvw_cd_recall *recall;           /* owned */
	struct kvw_coordinator_worker *workers; /* owned, [KVW_MAX_WORKERS] */
	size_t worker_count;                    /* slots of the fleet that have been used */
	bool in_charge;       /* no other process is the coordinator, neither still nor already */
	bool handed;          /* records of the process before us were read */
	bool remap;           /* instances or workers have changed */
	int64_t divided_ns;   /* since when servers report here and to another replica; 0: not */
	uint32_t only_worker; /* kvw_coordinator_l1 writes to this one; UINT32_MAX: to all */
	int64_t ticked_ns, complained_ns;
	_Atomic int64_t timeout_ns;
	uint64_t refused, posts, named;
	struct kvw_coordinator_server server;
	struct kvw_calls calls;
	struct kvw_coordinator_evict evict;
	struct kvw_coordinator_snapshot snapshot;
	struct kvw_coordinator_prefetch prefetch;
	struct kvw_coordinator_listing listing;
	struct kvw_coordinator_hashes hashes;
	int listen_fd; /* owned; -1: none, not yet, or not any more */
	char bound[KVW_LISTEN_TEXT];

	pthread_mutex_t lock;                   /* guards the members below; held for copies only */
	char (*seen)[KVW_CE_INSTANCE_MOST + 1]; /* owned, [KVW_MAX_WORKERS]; "": none */
	struct kvw_coordinator_stats stats;
};

/* The coordinator whose client this is. */
static inline struct kvw_coordinator *kvw_cr_of(const struct kvw_conn *conn)
{
	return ((struct kvw_coordinator_server *)conn->clients)->coordinator;
}

/* --- nodes.c: instances and workers, and the exact index --- */

/* kvw_cd_options.l1, can_name and freed; ctx is the coordinator. */
void kvw_coordinator_l1(
	void *ctx, struct kvw_cd_instance *instance, struct kvw_cd_object *object, bool holds);
bool kvw_coordinator_can_name(void *ctx, const struct kvw_cd_object *object);
void kvw_coordinator_freed(void *ctx, struct kvw_cd_instance *instance);

/* A prompt is sent to a worker: its first chunk may be one whose hash is reported. Any thread. */
void kvw_coordinator_note_first(
	struct kvw_coordinator *coordinator, const struct kvw_kvprompt *prompt);

/* Follows workers that come, go or move, and maps instances that changed. */
void kvw_coordinator_follow(struct kvw_coordinator *coordinator);
void kvw_coordinator_unfollow_all(struct kvw_coordinator *coordinator);
/* Reports what is known of the instance's workers, if that has changed. */
void kvw_coordinator_cover(struct kvw_coordinator *coordinator, struct kvw_cd_instance *instance);
/* A worker was purged from the index: writes what its node holds again. */
void kvw_coordinator_purged(struct kvw_coordinator *coordinator, uint32_t worker);

/* --- routes.c: requests --- */

void kvw_coordinator_request(struct kvw_conn *conn);
/* {"detail": message} with this status; extra: whole field lines, "": none. */
void kvw_coordinator_error(
	struct kvw_conn *conn, int status, const char *extra, const char *message);

/* --- evict.c: what a coordinator owes the shared L2 --- */

/* Does this process evict, and no other replica? */
bool kvw_coordinator_evicts(const struct kvw_coordinator *coordinator);
/* Sends a request to delete, if something is to be deleted and none is under way. */
void kvw_coordinator_evict(struct kvw_coordinator *coordinator);
/* Bytes that the shared pools may hold; 0: not known. */
uint64_t kvw_coordinator_cap(const struct kvw_coordinator *coordinator);

/* --- listing.c: what L2 held before --- */

void kvw_coordinator_list_tick(struct kvw_coordinator *coordinator, int64_t now_ns);

/* --- prefetch.c: for chosen workers --- */

/* A request with this prompt goes to the worker. Returns its number for
 * kvw_coordinator_first_token; 0: nothing is prefetched for it. Any thread. */
uint32_t kvw_coordinator_prefetch(
	struct kvw_coordinator *coordinator, uint32_t worker, const struct kvw_kvprompt *prompt);

void kvw_coordinator_prefetch_tick(struct kvw_coordinator *coordinator, int64_t now_ns);
/* After the calls are closed. */
void kvw_coordinator_prefetch_end(struct kvw_coordinator *coordinator);

/* --- snapshot.c: the directory in a file --- */

/* Reads the file, if there is one, unless the process before us is to hand the directory over. A
 * fault in it is no error. Before the listener is opened. */
enum kvw_err kvw_coordinator_snapshot_open(struct kvw_coordinator *coordinator) KVW_MUST_CHECK;
/* Any thread. */
void kvw_coordinator_snapshot_reconfigure(
	struct kvw_coordinator *coordinator, const struct kvw_config *config);
/* The same, once it is clear that nothing was handed over. */
void kvw_coordinator_snapshot_read(struct kvw_coordinator *coordinator);
void kvw_coordinator_snapshot_tick(struct kvw_coordinator *coordinator, int64_t now_ns);
/* Writes a last one, unless another process has taken over. */
void kvw_coordinator_snapshot_end(struct kvw_coordinator *coordinator);

/* --- cache_routes.c: /quota and /cache --- */

/* False: the path is none of them. */
bool kvw_coordinator_cache_request(struct kvw_conn *conn, struct kvw_slice path) KVW_MUST_CHECK;

/* --- serve.c: the listener and its clients --- */

/* Opens kvaware.lmcache.coordinator. KVW_EINVAL: printed to errors. */
enum kvw_err kvw_coordinator_open(struct kvw_coordinator *coordinator, FILE *errors) KVW_MUST_CHECK;
/* With deps->waits: accepts from now on. */
void kvw_coordinator_listen(struct kvw_coordinator *coordinator);
/* Another process accepts: the clients are let go. */
void kvw_coordinator_hand_over(struct kvw_coordinator *coordinator);
void kvw_coordinator_turn(struct kvw_coordinator *coordinator);
void kvw_coordinator_close(struct kvw_coordinator *coordinator);

#endif
