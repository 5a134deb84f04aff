/*
 * metrics_shard.h - the structs in which metrics are counted. Private to
 * src/router/admin/metrics*.c and collect*.c.
 *
 * Each loop owns one shard and is its only writer; a renderer reads all shards. Every number
 * is a relaxed atomic: a reader sees each of them whole, and may see two of them a request apart.
 *
 * What has a fixed small number of label values is a flat array. Numbers whose count grows with
 * workers (requests by worker and route, latency by worker and model) sit in cells that a shard
 * allocates when a pair is first seen, so a large fleet costs no more than the pairs that occur. If
 * memory for a cell is out, the request is counted under worker "none" and model "other", whose
 * cells exist from the start.
 */
#ifndef KVW_METRICS_SHARD_H
#define KVW_METRICS_SHARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "metrics/histogram.h"
#include "admin/metrics.h"
#include "admin/metrics_totals.h"
#include "admin/open_metrics.h"
#include "admission/scale.h"
#include "fleet/fleet.h"

/* Label values of `model`: slot 0 is "unknown", slot i + 1 the model with index i, the last
 * "other" (models beyond the limit). */
#define KVW_MODELS_NAMED KVW_MODELS_KEPT
#define KVW_MODEL_SLOTS  (KVW_MODELS_NAMED + 2)
#define KVW_MODEL_OTHER  (KVW_MODELS_NAMED + 1)

/* Label values of `status`: common codes exactly, other codes by class. */
#define KVW_STATUS_SLOTS 36

/* Label error_type of vllm:request_errors_total. */
enum kvw_error_type {
	KVW_ERROR_HTTP_4XX,
	KVW_ERROR_HTTP_5XX,
	KVW_ERROR_UPSTREAM_LOST,
	KVW_ERROR_TIMEOUT,
	KVW_ERROR_LOCAL, /* kvway itself answered with an error */
	KVW_ERROR_COUNT
};

/* Plain sums over all requests. */
enum kvw_tally {
	KVW_TALLY_REQUEST_BYTES,
	KVW_TALLY_RESPONSE_BYTES,
	KVW_TALLY_STREAM_CHUNKS,
	KVW_TALLY_PREDICTED_PROMPT,
	KVW_TALLY_PREDICTED_CACHED,
	KVW_TALLY_PREDICTED_FRAGMENTS,
	KVW_TALLY_PROMPT,
	KVW_TALLY_CACHED,
	KVW_TALLY_COMPLETION,
	KVW_TALLY_COMPARED,
	KVW_TALLY_ERROR,
	KVW_TALLY_COMPARISONS,
	KVW_TALLY_FIRST_TOKENS,
	KVW_TALLY_FIRST_TOKEN_PREDICTED, /* in ns, like the next two */
	KVW_TALLY_FIRST_TOKEN_ACTUAL,
	KVW_TALLY_FIRST_TOKEN_ERROR,
	KVW_TALLY_COUNT
};

/* Requests of one worker on one route. */
struct kvw_request_cell {
	_Atomic uint64_t count[KVW_END_COUNT][KVW_STATUS_SLOTS];
};

/* Requests of one model on one worker. */
struct kvw_server_cell {
	_Atomic uint64_t input_tokens, output_tokens;
	_Atomic uint64_t errors[KVW_ERROR_COUNT];
	struct kvw_histogram latency[2]; /* [0] success, [1] error */
};

/* Numbers of one worker, over all routes and models. */
struct kvw_worker_tally {
	_Atomic uint64_t finished;   /* requests that ended on it */
	_Atomic uint64_t latency_ns; /* their total times */
	_Atomic uint64_t output_tokens; /* generated, by usage */
	/* Streams whose usage has come: tokens after the first, and the time that these took. */
	_Atomic uint64_t decode_tokens, decode_ns;
	_Atomic int64_t decoding; /* requests that have a first token and have not ended; a gauge */

	/* Requests with both a predicted and an actual count of cached tokens. */
	_Atomic uint64_t compared;
	_Atomic uint64_t predicted, cached;     /* tokens */
	_Atomic uint64_t missing, unforeseen;   /* tokens predicted too many, too few */

	/* those of them whose predictions come from exact tokens and the worker's own reports */
	_Atomic uint64_t exact_right, exact_wrong;
};

struct kvw_route_histograms {
	struct kvw_histogram total, first_token, added;
};

/* Bounds of all histograms, computed once. */
struct kvw_metric_bounds {
	struct kvw_bounds latency; /* vllm:request_latency_seconds */
	struct kvw_bounds token;   /* total time and time to first token: vLLM's bounds for TTFT */
	struct kvw_bounds gap;     /* time between tokens: vLLM's bounds and three below */
	struct kvw_bounds added;
	struct kvw_bounds difference; /* a number of characters instead of ns */
	struct kvw_bounds ratio;      /* thousandths instead of ns */
};

/* Label values of `class`: names of admission.classes in the order in which they appeared; the last
 * is "other". */
#define KVW_CLASS_NAMES 32
#define KVW_CLASS_OTHER KVW_CLASS_NAMES
#define KVW_REFUSALS    3 /* service_level, deadline, queue_full */

struct kvw_metric_classes {
	char *_Atomic names[KVW_CLASS_NAMES]; /* owned; a NULL ends the list */
};

void kvw_metric_classes_finish(struct kvw_metric_classes *classes);

/* Label values of `model` and `group`: those of model_groups in the order in which they appeared;
 * the last is "other". */
#define KVW_GROUP_NAMES 128
#define KVW_GROUP_OTHER KVW_GROUP_NAMES

/* How a group's request ended. Label `result`. */
enum kvw_group_result {
	KVW_GROUP_OK,
	KVW_GROUP_ERROR,
	KVW_GROUP_REFUSED,
	KVW_GROUP_LEFT,
	KVW_GROUP_RESULTS
};
enum kvw_group_tokens {
	KVW_GROUP_PROMPT,
	KVW_GROUP_CACHED,
	KVW_GROUP_COMPLETION,
	KVW_GROUP_TOKENS
};

/* Comparisons of copies for one group with the clients' answers of another. */
struct kvw_pair_cell {
	struct kvw_pair_cell *_Atomic next; /* next pair of the same group; owned */
	uint8_t of; /* label of the other group */
	_Atomic uint64_t results[KVW_FIDELITY_RESULTS];
	/* characters of equal and different answers: the client's and the copy's */
	_Atomic uint64_t characters[2];
	/* For different answers: characters before the first difference. */
	struct kvw_histogram difference;
};

/* Requests of one group. */
struct kvw_group_cell {
	_Atomic uint64_t chosen[KVW_GROUP_BY_COUNT];
	_Atomic uint64_t results[KVW_GROUP_RESULTS];
	_Atomic uint64_t kept[KVW_KEPT_COUNT];
	_Atomic uint64_t tokens[KVW_GROUP_TOKENS];
	_Atomic uint64_t shadows[KVW_SHADOW_RESULTS];
	struct kvw_histogram first_token, gap, per_token, shadow_answer;
	struct kvw_pair_cell *_Atomic pairs; /* owned */
};

struct kvw_metric_groups {
	/* Each is "MODEL", NUL, "GROUP"; owned; a NULL ends the list. */
	char *_Atomic names[KVW_GROUP_NAMES];
};

void kvw_metric_groups_finish(struct kvw_metric_groups *groups);
void kvw_group_cell_destroy(struct kvw_group_cell *cell); /* NULL is allowed */
void kvw_metrics_group_record(
	struct kvw_metrics_shard *shard, const struct kvw_request_record *record, bool failed);

/* Prefill and decode on different workers. */
struct kvw_pd_cell {
	_Atomic uint64_t plans[KVW_PD_PLANS], legs[KVW_PD_LEGS], decodes[KVW_PD_DECODES];
	_Atomic uint64_t prompt_tokens, cached_tokens;
	struct kvw_histogram prefill, handover, transfer;
};

#define KVW_ROLES (KVW_ROLE_DECODE + 1)

struct kvw_metrics_shard {
	_Alignas(64) const struct kvw_metric_bounds *bounds;
	struct kvw_metric_classes *classes; /* of all shards */
	struct kvw_metric_groups *groups;   /* likewise */
	size_t worker_slots; /* slots of the fleet + 1; slot 0: no worker */
	_Atomic uint64_t counters[KVW_COUNTER_COUNT];
	_Atomic int64_t gauges[KVW_GAUGE_COUNT];
	_Atomic uint64_t tallies[KVW_TALLY_COUNT];
	_Atomic uint64_t reasons[KVW_REASON_COUNT];
	_Atomic uint64_t knowledges[KVW_KNOWLEDGE_COUNT];
	_Atomic uint64_t incoming[KVW_MODEL_SLOTS];
	_Atomic uint64_t inexact[KVW_INEXACT_COUNT];
	_Atomic uint64_t kept[KVW_CLASS_NAMES + 1][KVW_KEPT_COUNT];
	_Atomic uint64_t refused[KVW_CLASS_NAMES + 1][KVW_REFUSALS];
	_Atomic int64_t oldest_ns; /* when the oldest waiting request arrived; 0: none waits */
	struct kvw_histogram gap, token_wait, wait;
	struct kvw_pd_cell pd;
	struct kvw_route_histograms routes[KVW_API_COUNT];
	/* NULL: the loop had no prediction for the model and role; owned */
	struct kvw_scale *_Atomic scales[KVW_MODEL_SLOTS][KVW_ROLES];
	/* NULL: the loop had no request of the group */
	struct kvw_group_cell *_Atomic group_cells[KVW_GROUP_NAMES + 1];
	struct kvw_worker_tally *workers;                 /* [worker_slots] */
	struct kvw_request_cell *_Atomic *request_cells;  /* [worker_slots][KVW_API_COUNT] */
	struct kvw_server_cell *_Atomic *server_cells;    /* [worker_slots][KVW_MODEL_SLOTS] */
};

/* Samples of the last minute, from which rates are computed. Guarded by kvw_metrics.lock. */
#define KVW_WINDOW_SAMPLES   13
#define KVW_WINDOW_STEP_NS   (INT64_C(5) * 1000000000)
#define KVW_WINDOW_LENGTH_NS (INT64_C(60) * 1000000000)

struct kvw_window_worker {
	uint64_t finished, latency_ns;
	uint64_t output_tokens, decode_tokens, decode_ns;
};

struct kvw_window {
	int64_t at_ns[KVW_WINDOW_SAMPLES];
	int64_t cpu_ns[KVW_WINDOW_SAMPLES]; /* CPU time of the process at each sample */
	struct kvw_window_worker *workers;  /* [KVW_WINDOW_SAMPLES][worker_slots] */
	size_t newest, count;
	uint64_t open_fds;                  /* when the newest sample was taken */
};

struct kvw_metrics {
	const struct kvw_fleet *fleet;
	struct kvw_metrics_sources sources;
	struct kvw_metric_bounds bounds;
	struct kvw_metric_classes classes;
	struct kvw_metric_groups groups;
	struct kvw_metrics_shard *shards; /* [loops] */
	size_t loops, worker_slots;
	int64_t start_wall_ns;
	/* guards window, models, scale_windows and exemplars; recording never takes it */
	pthread_mutex_t lock;
	struct kvw_window window;
	/* NULL: no loop had a prediction when the last sample was taken; owned */
	struct kvw_scale_window *scale_windows[KVW_MODEL_SLOTS][KVW_ROLES];
	const struct kvw_model *models[KVW_MODELS_NAMED]; /* models by index; NULL: not seen yet */
	struct kvw_exemplar_table exemplars;
	/* requests that workers served which have left, by enum kvw_total */
	_Atomic uint64_t left[KVW_TOTAL_FATES];
};

/* Returns the label text of a status slot. */
const char *kvw_status_name(size_t slot);

/* Returns the counts of the worker since the oldest sample of the window, and over how many ns (0:
 * unknown). */
int64_t kvw_window_delta(const struct kvw_metrics *metrics, size_t slot, int64_t now_ns,
	struct kvw_window_worker *delta);
/* Clears the slot's samples, since it will have another worker. metrics->lock is held. */
void kvw_window_forget(struct kvw_metrics *metrics, size_t slot);
/* Returns how many percent of the usable cores the process used lately. */
double kvw_window_cpu_percent(const struct kvw_metrics *metrics, int64_t now_ns);
/* Takes a sample if the newest one is at least a step old. metrics->lock is held. */
void kvw_window_sample(struct kvw_metrics *metrics, int64_t now_ns);

/* All loops' predictions for one model and role. */
struct kvw_scale_sums {
	struct kvw_histogram_sum ratios;
	uint64_t ns[KVW_SCALE_PARTS];
};

/* Adds up the predictions for a model's slot and a role. False: there were none. */
bool kvw_scale_sums(const struct kvw_metrics *metrics, size_t model, size_t role,
	struct kvw_scale_sums *out);
/* Samples all predictions if the newest sample is at least a step old. metrics->lock is held. */
void kvw_scale_tick(struct kvw_metrics *metrics, int64_t now_ns);
void kvw_scale_finish(struct kvw_metrics *metrics);

#endif
