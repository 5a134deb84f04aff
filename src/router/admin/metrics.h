/*
 * metrics.h - counts what the router does, and writes it as Prometheus text.
 *
 * Every metric is one line of metrics.def. Each loop writes its own shard without locks (relaxed
 * atomics, one writer); a scrape adds the shards up. Label values are bounded: routes are a fixed
 * list, models and workers are the known ones, reasons an enum.
 */
#ifndef KVW_METRICS_H
#define KVW_METRICS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "base/record.h"

struct kvw_access_log;
struct kvw_feed;
struct kvw_fleet;
struct kvw_ledger;
struct kvw_metric_info; /* metrics/exposition.h */
struct kvw_scale_prediction; /* admission/scale.h */
struct kvw_tokens;
struct kvw_trace_story;  /* trace/trace.h */

/* Counters for kvw_metrics_add(): one for each KVW_COUNTER of metrics.def, and the kinds of
 * kvway_timeouts_total. */
enum kvw_counter {
#define KVW_METRIC(name, type, labels, collector, arg, help)
#define KVW_COUNTER(name, id, help) KVW_COUNT_##id,
#define KVW_GAUGE(name, id, help)
#include "admin/metrics.def"
	KVW_COUNT_TIMEOUT_CONNECT,
	KVW_COUNT_TIMEOUT_FIRST_TOKEN,
	KVW_COUNT_TIMEOUT_STREAM_IDLE,
	KVW_COUNT_TIMEOUT_HEAD,
	KVW_COUNT_TIMEOUT_BODY,
	KVW_COUNT_TIMEOUT_CLIENT_WRITE,
	KVW_COUNT_TIMEOUT_ATTEMPT,
	KVW_COUNT_TIMEOUT_REQUEST,
	/* The kinds of kvway_auth_refused_total. */
	KVW_COUNT_AUTH_MISSING,
	KVW_COUNT_AUTH_SCHEME,
	KVW_COUNT_AUTH_TWICE,
	KVW_COUNT_AUTH_QUERY,
	KVW_COUNT_AUTH_UNKNOWN,
	KVW_COUNT_AUTH_EXPIRED,
	KVW_COUNT_AUTH_PATH,
	KVW_COUNT_AUTH_MODEL,
	KVW_COUNT_AUTH_TENANT,
	/* The kinds of kvway_rate_limited_total. */
	KVW_COUNT_RATE_REQUESTS,
	KVW_COUNT_RATE_TOKENS,
	KVW_COUNT_RATE_DAY,
	KVW_COUNT_RATE_CONCURRENT,
	KVW_COUNT_BODY_SALTED,
	KVW_COUNT_BODY_RENAMED,
	KVW_COUNT_BODY_STRIPPED,
	KVW_COUNTER_COUNT
};

/* Gauges of a loop, one for each KVW_GAUGE of metrics.def; only that loop adds to them and
 * subtracts from them. */
enum kvw_gauge {
#define KVW_METRIC(name, type, labels, collector, arg, help)
#define KVW_COUNTER(name, id, help)
#define KVW_GAUGE(name, id, help) KVW_GAUGE_##id,
#include "admin/metrics.def"
	KVW_GAUGE_COUNT
};

/* Whether a promise was kept. Label `result` of kvway_service_level_total. */
enum kvw_kept {
	KVW_KEPT,
	KVW_KEPT_LATE,    /* the first token came too late */
	KVW_KEPT_SLOW,    /* the first token came in time, but the tokens after it took too long */
	KVW_KEPT_FAILED,  /* there was no answer, or only a part of it */
	KVW_KEPT_REFUSED, /* refused with 429 */
	KVW_KEPT_UNSEEN,  /* the answer came in one piece, which hides when its first token came */
	KVW_KEPT_COUNT
};

/* Why a request went to its group. Label `by` of kvway_group_chosen_total. */
enum kvw_group_by {
	KVW_GROUP_BY_SESSION,      /* chosen by the session */
	KVW_GROUP_BY_CONVERSATION, /* chosen by a hash of the chat's beginning */
	KVW_GROUP_BY_REQUEST,      /* chosen by a hash of its x-request-id */
	KVW_GROUP_BY_HEADER,       /* the client named the group */
	/* the only worker that can answer, or the named one, is in the group */
	KVW_GROUP_BY_WORKER,
	/* the group that would have been chosen has no worker for the request */
	KVW_GROUP_BY_FALLBACK,
	KVW_GROUP_BY_COUNT
};

/* How a request's copy ended. Label `result` of kvway_group_shadow_total. */
enum kvw_shadow_result {
	KVW_SHADOW_OK,        /* answered completely, with 2xx */
	/* answered with another status, or the worker could not be reached or broke off */
	KVW_SHADOW_ERROR,
	KVW_SHADOW_TIMEOUT,   /* groups.shadow_timeout */
	KVW_SHADOW_LIMIT,     /* groups.shadow_answer */
	KVW_SHADOW_CANCELLED, /* kvway drains, or the worker left */
	KVW_SHADOW_DROPPED,   /* not made: too many copies, too large, no worker, or no memory */
	KVW_SHADOW_RESULTS
};

/* Result of comparing a copy's answer with the client's. Label `result` of
 * kvway_group_fidelity_total. */
enum kvw_fidelity_result {
	KVW_FIDELITY_EQUAL,
	KVW_FIDELITY_DIFFERENT,
	KVW_FIDELITY_UNFINISHED, /* one of the answers failed or was cut off, or the client left */
	/* No text was found, or several texts were; or one answer was too far ahead of the
	 * other. */
	KVW_FIDELITY_UNREAD,
	KVW_FIDELITY_RESULTS
};

/* Lengths in characters. */
struct kvw_fidelity_lengths {
	uint64_t same; /* characters of the common beginning */
	uint64_t client, copy;
};

/* Whether a request is split between two workers. Label `plan` of kvway_pd_plans_total. */
enum kvw_pd_plan {
	KVW_PD_PLAN_SPLIT,
	KVW_PD_PLAN_HERE,           /* one worker alone costs less */
	/* one worker alone costs less, and its role is to prefill (pd.whole) */
	KVW_PD_PLAN_PREFILLER_HERE,
	KVW_PD_PLAN_WHOLE,          /* the request cannot be split */
	KVW_PD_PLAN_DECODER_ALONE,  /* no worker can prefill for another one */
	/* no worker can decode, and one of role prefill serves the request */
	KVW_PD_PLAN_PREFILLER_ALONE,
	KVW_PD_PLANS
};
#define KVW_PD_PLAN_NAMES \
	{"split", "here", "prefiller_here", "whole", "decoder_alone", "prefiller_alone"}

/* How a prefill for another worker ended. Label `result` of kvway_pd_prefills_total. The first two
 * leave a connection that can be kept. */
enum kvw_pd_leg {
	KVW_PD_LEG_OK,
	KVW_PD_LEG_NO_PARAMS, /* the prefiller's answer has no usable kv_transfer_params */
	KVW_PD_LEG_ERROR,     /* another status than 200 */
	KVW_PD_LEG_LOST,      /* the connection was lost, or could not be made */
	KVW_PD_LEG_TIMEOUT,
	KVW_PD_LEG_FULL,
	KVW_PD_LEG_CANCELLED, /* the client left, or the request's own time limit passed */
	KVW_PD_LEGS
};
#define KVW_PD_LEG_NAMES {"ok", "no_params", "error", "lost", "timeout", "full", "cancelled"}

/* The fate of a prefilled prompt. Label `result` of kvway_pd_decodes_total. */
enum kvw_pd_decode {
	KVW_PD_DECODE_TRANSFERRED, /* the decoder gave its first token */
	KVW_PD_DECODE_FALLBACK, /* the prefill failed, and the decoder served the request whole */
	KVW_PD_DECODE_FAILED,      /* the prefill failed, and pd.fallback is off */
	/* served whole, since the prefiller is another engine that has not proven itself yet */
	KVW_PD_DECODE_QUARANTINED,
	/* the decoder answered an error: the request was served whole, or the error was the
	 * client's own */
	KVW_PD_DECODE_REFUSED,
	KVW_PD_DECODE_EXPIRED, /* half of the lease passed before there was a token, or a decoder */
	/* the decoder failed: the prompt was prefilled again, or the request served whole */
	KVW_PD_DECODE_REPEATED,
	KVW_PD_DECODE_LEFT,        /* the client left */
	KVW_PD_DECODES
};
#define KVW_PD_DECODE_NAMES                                                                        \
	{"transferred", "fallback", "failed", "quarantined", "refused", "expired", "repeated",     \
		"left"}

struct kvw_account;
struct kvw_metrics;
struct kvw_metrics_shard;

/* Sources of the numbers that other parts of kvway count. Borrowed; members may be NULL. */
struct kvw_metrics_sources {
	/* Monotonic ns of each loop's last turn; 0: the loop has not begun. */
	const _Atomic int64_t *loop_turn_ns;
	size_t loop_count;
	const struct kvw_access_log *access_log;
	const struct kvw_account *memory;
	struct kvw_ledger *ledger; /* NULL: usage is not counted */
	struct kvw_tokens *tokens;
	struct kvw_feed *feed;
	const struct kvw_auth_state *auth; /* NULL: there are no keys of clients */
	const struct kvw_state_status *state;    /* state of snapshots; NULL: there are none */
	/* state of shared limits; NULL: limits are not shared */
	const struct kvw_sharing_state *sharing;
	/* NULL: this process takes part in no takeover */
	const struct kvw_takeover_state *takeover;
	/* state of the load that replicas share; NULL: it is not shared */
	const struct kvw_load_state *load;
	const struct kvw_otel_state *otel; /* state of the export of spans; NULL: there is none */
	/* state of the keys that verify tokens; NULL: clients show no tokens */
	const struct kvw_jwt_gate_state *jwt;
	const struct kvw_reload_state *reload; /* NULL: there is none */
	const struct kvw_admin_http_state *admin;
	const struct kvw_broadcast_state *broadcasts;
	const struct kvw_member_listing *listings; /* lists by source; NULL: there are none */
	struct kvw_source *const *discovery; /* [discovery_count] sources that run */
	size_t discovery_count;
};

/* fleet is borrowed. */
enum kvw_err kvw_metrics_create(size_t loops, const struct kvw_fleet *fleet,
	struct kvw_metrics **out) KVW_MUST_CHECK;
void kvw_metrics_destroy(struct kvw_metrics *metrics); /* NULL is allowed */
struct kvw_metrics_shard *kvw_metrics_shard(struct kvw_metrics *metrics, size_t loop);
/* Called before other threads render; kvw_admin_start() does it. */
void kvw_metrics_set_sources(struct kvw_metrics *metrics,
	const struct kvw_metrics_sources *sources);

/* --- called by the loop that owns the shard --- */
void kvw_metrics_add(struct kvw_metrics_shard *shard, enum kvw_counter counter, uint64_t n);
void kvw_metrics_gauge(struct kvw_metrics_shard *shard, enum kvw_gauge gauge, int64_t delta);
void kvw_metrics_stream_gap(struct kvw_metrics_shard *shard, int64_t gap_ns); /* inter-token */
/* Counts a prompt for a strategy that wants exact tokens: whether it has them, or why not. */
void kvw_metrics_inexact(struct kvw_metrics_shard *shard, enum kvw_inexact inexact);
/* Returns the label of a class for the next two functions. name: of admission.classes; len 0: there
 * are no classes. Does not wait. */
uint8_t kvw_metrics_class(struct kvw_metrics_shard *shard, struct kvw_slice name);
void kvw_metrics_kept(struct kvw_metrics_shard *shard, uint8_t class, enum kvw_kept kept);
/* Counts a refused request. counter: one of KVW_COUNT_REFUSED_*, which is counted, too. */
void kvw_metrics_refused(
	struct kvw_metrics_shard *shard, uint8_t class, enum kvw_counter counter);
/* Returns the label of a group for the next three functions and for records. Does not wait. */
uint8_t kvw_metrics_group(
	struct kvw_metrics_shard *shard, struct kvw_slice model, struct kvw_slice group);
void kvw_metrics_group_chosen(struct kvw_metrics_shard *shard, uint8_t group, enum kvw_group_by by);
void kvw_metrics_group_kept(struct kvw_metrics_shard *shard, uint8_t group, enum kvw_kept kept);
/* inter-token. */
void kvw_metrics_group_gap(struct kvw_metrics_shard *shard, uint8_t group, int64_t gap_ns);
void kvw_metrics_group_shadow(
	struct kvw_metrics_shard *shard, uint8_t group, enum kvw_shadow_result result);
/* Notes how long after a copy was sent the first byte of its answer's body came. */
void kvw_metrics_group_shadow_answer(
	struct kvw_metrics_shard *shard, uint8_t group, int64_t after_ns);
/* Label text. */
/* Counts a comparison of the copy of `group` with the client's answer of group `of`. */
void kvw_metrics_group_fidelity(struct kvw_metrics_shard *shard, uint8_t group, uint8_t of,
	enum kvw_fidelity_result result, const struct kvw_fidelity_lengths *lengths);

const char *kvw_group_by_name(enum kvw_group_by by);
/* Records a predicted and an actual time to first token, both since the request was sent and >=
 * 0. */
void kvw_metrics_first_token(
	struct kvw_metrics_shard *shard, int64_t predicted_ns, int64_t actual_ns);
/* Counts a request's prediction. model_label: as in struct kvw_request_record; role: of the worker,
 * enum kvw_role. */
void kvw_metrics_predicted(struct kvw_metrics_shard *shard, uint32_t model_label, uint8_t role,
	const struct kvw_scale_prediction *prediction);
/* Sets when the request arrived that has waited longest for a worker; 0: none waits. */
void kvw_metrics_oldest(struct kvw_metrics_shard *shard, int64_t came_ns);
/* Records how long a request has waited in kvway for a worker. */
void kvw_metrics_waited(struct kvw_metrics_shard *shard, int64_t wait_ns);
void kvw_metrics_token_wait(struct kvw_metrics_shard *shard, int64_t wait_ns); /* for them */
/* --- prefill and decode on different workers --- */
void kvw_metrics_pd_plan(struct kvw_metrics_shard *shard, enum kvw_pd_plan plan);
/* Counts a prefill leg. Tokens are 0 if they are not known. */
void kvw_metrics_pd_leg(struct kvw_metrics_shard *shard, enum kvw_pd_leg leg, int64_t took_ns,
	uint32_t prompt_tokens, uint32_t cached_tokens);
void kvw_metrics_pd_decode(struct kvw_metrics_shard *shard, enum kvw_pd_decode decode);
/* Records the time from the prefiller's last byte to the first byte to the decoder. */
void kvw_metrics_pd_handover(struct kvw_metrics_shard *shard, int64_t took_ns);
/* Records the time from the first byte to the decoder to its first token. */
void kvw_metrics_pd_transfer(struct kvw_metrics_shard *shard, int64_t took_ns);

/* Counts requests that are generating: +1 when a request on this worker has its first token, -1
 * when it ends. */
void kvw_metrics_decoding(struct kvw_metrics_shard *shard, uint32_t worker_id, int delta);
/* Resets the counters of a worker that has left, since its slot may get another one. Control
 * thread. */
void kvw_metrics_forget(struct kvw_metrics *metrics, uint32_t worker_id);
/* Called once per request, at its end. */
void kvw_metrics_record(struct kvw_metrics_shard *shard, const struct kvw_request_record *record);

/* --- any thread --- */
/* Return the sum of a gauge or counter over the shards. */
int64_t kvw_metrics_gauge_sum(const struct kvw_metrics *metrics, enum kvw_gauge gauge);
uint64_t kvw_metrics_counter_sum(const struct kvw_metrics *metrics, enum kvw_counter counter);

/* Tokens of one worker's answers since it joined. */
struct kvw_worker_tokens {
	uint64_t prompt;            /* prompt tokens of all answers that state them */
	/* Sums over answers that state cached tokens and had a prediction. */
	uint64_t compared;
	uint64_t predicted, cached; /* of these: tokens */
};
void kvw_metrics_worker_tokens(
	const struct kvw_metrics *metrics, uint32_t worker_id, struct kvw_worker_tokens *out);

struct kvw_worker;
/* Numbers of one worker, now and in about the last minute. */
struct kvw_worker_now {
	uint64_t running, prefilling, decoding; /* requests */
	double kv_used;                         /* share of its KV memory; -1: not known */
	double requests_per_s, tokens_per_s;    /* ended; generated by those */
	uint64_t decode_tokens; /* tokens after the first of streams that ended */
	double decode_ms;       /* mean time of one of these; 0: there were none */
};
/* Control thread. */
void kvw_metrics_worker_now(struct kvw_metrics *metrics, struct kvw_worker *worker, int64_t now_ns,
	struct kvw_worker_now *out);

/* Writes all metrics in Prometheus' text format 0.0.4; `open`: in that of OpenMetrics 1.0.0, with
 * exemplars. The caller frees *text. now_ns: monotonic. Called by a loop or the control thread,
 * which may read the fleet's view. */
enum kvw_err kvw_metrics_render(struct kvw_metrics *metrics, int64_t now_ns, bool open,
	char **text, size_t *len) KVW_MUST_CHECK;

/* Notes a request whose spans are exported (struct kvw_otel_deps), as an exemplar. metrics: struct
 * kvw_metrics. Any thread. */
void kvw_metrics_made(void *metrics, const struct kvw_trace_story *story);

/* Samples the counters from which rates are computed. Called by the control thread about once a
 * second. */
void kvw_metrics_tick(struct kvw_metrics *metrics, int64_t now_ns);

/* Returns a label text, for example "no_tokens". */
const char *kvw_inexact_name(enum kvw_inexact inexact);
/* Returns a label text, for example "engine". */
const char *kvw_reporter_name(enum kvw_reporter reporter);
/* For example "full". */
const char *kvw_coverage_name(enum kvw_coverage coverage);

/* --- the list itself, from metrics.def --- */
/* Returns the i-th metric; NULL: i is past the last. */
const struct kvw_metric_info *kvw_metric_info(size_t i);

/* Writes METRICS.md. */
void kvw_metrics_reference(FILE *out);

#endif
