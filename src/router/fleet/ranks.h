/*
 * ranks.h - the data-parallel ranks of one endpoint, each a worker of its own.
 *
 * vLLM with --data-parallel-size N has N engines behind one URL, each with a cache and a queue of
 * its own. Each engine is a worker in kvway, named URL@RANK, with its own load, prefix tree, KV
 * events and metrics. Rank 0, the lead, has in its slot what belongs to the API server:
 * connections, probes, addresses and the list of models.
 *
 * A rank has two numbers. Its index counts the ranks of its API server from 0, and is part of its
 * name. Its global rank counts the ranks of all servers of a deployment, and is in KV events and
 * the label `engine` of metrics. X-data-parallel-rank is the index in vLLM's Python frontend and
 * the global rank in its Rust frontend, and the server answers 400 to a number that it does not
 * know:
 *
 *	INDEX --refused--> GLOBAL --refused--> UNSENT --a minute later, or restarted--> INDEX
 *
 * SGLang takes the index. It reads the same field on the paths of chat, completions and messages.
 * On /generate it reads `routed_dp_rank` in the body alone, which kvway writes there
 * (proxy/rank.h). On /v1/responses up to 0.5.19, /encode, /vertex_generate and Ollama's paths it
 * reads neither, and chooses by itself (sglang #19832, #35503, #38729). kvway reads no metrics of
 * it: the configuration names its ranks.
 *
 * With UNSENT the engine chooses a rank by itself. Where both numbers are equal, GLOBAL is skipped.
 */
#ifndef KVW_RANKS_H
#define KVW_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

struct kvw_fleet;
struct kvw_worker;

#define KVW_RANKS_MOST   64 /* most ranks of one endpoint: the bits of a word */
#define KVW_RANK_NONE    (-1)
#define KVW_RANK_UNKNOWN UINT32_MAX /* a global rank */
#define KVW_RANK_ROOM    4 /* bytes that "@RANK" adds to a URL, with a final zero */

/* The number that a server expects in X-data-parallel-rank. */
enum kvw_rank_index { KVW_RANK_INDEX, KVW_RANK_GLOBAL, KVW_RANK_UNSENT };

/* Returns the index at the end of URL@INDEX, and sets *len to the length of the URL before it.
 * KVW_RANK_NONE: the text has no index, and *len is its whole length. Any thread. */
int kvw_rank_split(const char *url, size_t *len);

/* Returns the number of ranks that an entry is configured to have; 0: as many as its metrics
 * show. */
uint32_t kvw_ranks_configured(
	const struct kvw_config *config, const struct kvw_worker_config *entry);

/* Copies the settings of an entry with `count` ranks for one rank, with that rank's URL; the caller
 * releases the copy. */
enum kvw_err kvw_rank_config(const struct kvw_worker_config *entry, uint32_t count, uint32_t rank,
	struct kvw_worker_config *out) KVW_MUST_CHECK;

/* Walks over all workers of the endpoint of `worker`, one a call: first its lead, then other LIVE
 * ones. *at is 0 at first. NULL: there are no more. Any thread that may read `worker`. */
struct kvw_worker *kvw_ranks_next(
	const struct kvw_fleet *fleet, struct kvw_worker *worker, size_t *at);

/* --- X-data-parallel-rank; any thread --- */

/* Returns the number to send in a request to this rank. sure: only a number that the server is
 * known to accept, since the request cannot be repeated. KVW_RANK_NONE: the request must not have
 * the field. */
int64_t kvw_rank_number(struct kvw_worker *worker, bool sure, int64_t now_ns);

/* Returns whether `data`, the beginning of the body of an answer 400, refuses this number of a
 * rank. */
bool kvw_rank_denies(const char *data, size_t len, int64_t number);

/* kvw_rank_refused: the server has refused this number; kvw_rank_accepted: it has answered well to
 * a request with it. */
void kvw_rank_refused(struct kvw_worker *worker, int64_t number, int64_t now_ns);
void kvw_rank_accepted(struct kvw_worker *worker, int64_t number);

/* Forgets which number the server expects, since it may be another process. */
void kvw_rank_forget(struct kvw_worker *worker);

#endif
