/*
 * metrics.h - counters and histograms of the router, and their Prometheus text.
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
struct kvw_metric_info; /* metrics/exposition.h */
struct kvw_tokens;

/* Counters that kvw_metrics_add() adds to: one for each KVW_COUNTER of metrics.def, and the kinds
 * of kvway_timeouts_total. */
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

/* Gauges that a loop keeps, one for each KVW_GAUGE of metrics.def: added to and subtracted from by
 * that loop alone. */
enum kvw_gauge {
#define KVW_METRIC(name, type, labels, collector, arg, help)
#define KVW_COUNTER(name, id, help)
#define KVW_GAUGE(name, id, help) KVW_GAUGE_##id,
#include "admin/metrics.def"
	KVW_GAUGE_COUNT
};

/* The end of a promise. Label `result` of kvway_service_level_total. */
enum kvw_kept {
	KVW_KEPT,
	KVW_KEPT_LATE,    /* the first token came too late */
	KVW_KEPT_SLOW,    /* it came in time, the tokens after it took too long */
	KVW_KEPT_FAILED,  /* there was no answer, or not all of it */
	KVW_KEPT_REFUSED, /* with 429 */
	KVW_KEPT_UNSEEN,  /* of an answer in one piece: it hides when its first token came */
	KVW_KEPT_COUNT
};

/* Why a request went to its group. Label `by` of kvway_group_chosen_total. */
enum kvw_group_by {
	KVW_GROUP_BY_SESSION,      /* by its session */
	KVW_GROUP_BY_CONVERSATION, /* by how its chat begins */
	KVW_GROUP_BY_REQUEST,      /* by its x-request-id */
	KVW_GROUP_BY_HEADER,       /* its client named it */
	/* the only worker that can answer, or the named one, is the group's */
	KVW_GROUP_BY_WORKER,
	KVW_GROUP_BY_FALLBACK,     /* the one that it would have gone to has no worker for it */
	KVW_GROUP_BY_COUNT
};

/* The end of a request's copy. Label `result` of kvway_group_shadow_total. */
enum kvw_shadow_result {
	KVW_SHADOW_OK,        /* answered whole, with 2xx */
	KVW_SHADOW_ERROR,     /* another status, or its worker could not be reached or broke off */
	KVW_SHADOW_TIMEOUT,   /* groups.shadow_timeout */
	KVW_SHADOW_LIMIT,     /* groups.shadow_answer */
	KVW_SHADOW_CANCELLED, /* kvway drains, or its worker left */
	KVW_SHADOW_DROPPED,   /* not made: too many, too large, no worker, no memory */
	KVW_SHADOW_RESULTS
};

/* Result of comparing a copy's answer with the client's. Label `result` of
 * kvway_group_fidelity_total. */
enum kvw_fidelity_result {
	KVW_FIDELITY_EQUAL,
	KVW_FIDELITY_DIFFERENT,
	KVW_FIDELITY_UNFINISHED, /* one of them failed, was cut off, or its client left */
	/* No text was found, or several; or one was too far ahead of the other. */
	KVW_FIDELITY_UNREAD,
	KVW_FIDELITY_RESULTS
};

/* Lengths in characters. */
struct kvw_fidelity_lengths {
	uint64_t same; /* of the beginning that both have */
	uint64_t client, copy;
};

/* Whether a request is split. Label `plan` of kvway_pd_plans_total. */
enum kvw_pd_plan {
	KVW_PD_PLAN_SPLIT,
	KVW_PD_PLAN_HERE,           /* one worker alone costs less */
	KVW_PD_PLAN_PREFILLER_HERE, /* likewise, and its role is to prefill (pd.whole) */
	KVW_PD_PLAN_WHOLE,          /* it cannot be split */
	KVW_PD_PLAN_DECODER_ALONE,  /* no worker can prefill for another */
	KVW_PD_PLAN_PREFILLER_ALONE, /* no worker can decode, and one of role prefill serves it */
	KVW_PD_PLANS
};
#define KVW_PD_PLAN_NAMES \
	{"split", "here", "prefiller_here", "whole", "decoder_alone", "prefiller_alone"}

/* How a prefill for another worker ended. Label `result` of kvway_pd_prefills_total. The first two
 * leave a connection that can be kept. */
enum kvw_pd_leg {
	KVW_PD_LEG_OK,
	KVW_PD_LEG_NO_PARAMS, /* its answer has no usable kv_transfer_params */
	KVW_PD_LEG_ERROR,     /* another status than 200 */
	KVW_PD_LEG_LOST,      /* the connection, or it could not be made */
	KVW_PD_LEG_TIMEOUT,
	KVW_PD_LEG_FULL,
	KVW_PD_LEG_CANCELLED, /* the client left, or its request's own time passed */
	KVW_PD_LEGS
};
#define KVW_PD_LEG_NAMES {"ok", "no_params", "error", "lost", "timeout", "full", "cancelled"}

/* The end of a prefilled prompt. Label `result` of kvway_pd_decodes_total. */
enum kvw_pd_decode {
	KVW_PD_DECODE_TRANSFERRED, /* the decoder gave its first token */
	KVW_PD_DECODE_FALLBACK,    /* the prefill failed: the decoder served it whole */
	KVW_PD_DECODE_FAILED,      /* likewise, and pd.fallback is off */
	KVW_PD_DECODE_QUARANTINED, /* whole: the prefiller is another engine, not proven yet */
	KVW_PD_DECODE_REFUSED,     /* the decoder answered an error: whole, or the client's own */
	KVW_PD_DECODE_EXPIRED,     /* half of the lease passed before a token or a decoder */
	KVW_PD_DECODE_REPEATED,    /* the decoder failed: prefilled again, or served whole */
	KVW_PD_DECODE_LEFT,        /* the client left */
	KVW_PD_DECODES
};
#define KVW_PD_DECODE_NAMES                                                                        \
	{"transferred", "fallback", "failed", "quarantined", "refused", "expired", "repeated",     \
		"left"}

struct kvw_account;
struct kvw_metrics;
struct kvw_metrics_shard;

/* Sources of numbers that this room does not count itself. Borrowed; members may be NULL. */
struct kvw_metrics_sources {
	/* Monotonic ns of each loop's last turn; 0: not begun. */
	const _Atomic int64_t *loop_turn_ns;
	size_t loop_count;
	const struct kvw_access_log *access_log;
	const struct kvw_account *memory;
	struct kvw_tokens *tokens;
	struct kvw_feed *feed;
	const struct kvw_auth_state *auth; /* NULL: there are no keys of clients */
	const struct kvw_state_status *state;    /* of snapshots; NULL: there are none */
	const struct kvw_sharing_state *sharing; /* of limits; NULL: there is none */
	const struct kvw_takeover_state *takeover; /* NULL: this process takes no part in any */
	const struct kvw_load_state *load; /* shared with other replicas; NULL: it is not */
	const struct kvw_jwt_gate_state *jwt; /* NULL: tokens are not asked for */
	const struct kvw_reload_state *reload; /* NULL: there is none */
	const struct kvw_admin_http_state *admin;
	const struct kvw_broadcast_state *broadcasts;
	const struct kvw_member_listing *listings; /* by source; NULL: there are none */
	struct kvw_source *const *discovery; /* [discovery_count], that run */
	size_t discovery_count;
};

/* fleet is borrowed. */
enum kvw_err kvw_metrics_create(size_t loops, const struct kvw_fleet *fleet,
	struct kvw_metrics **out) KVW_MUST_CHECK;
void kvw_metrics_destroy(struct kvw_metrics *metrics); /* NULL is allowed */
struct kvw_metrics_shard *kvw_metrics_shard(struct kvw_metrics *metrics, size_t loop);
/* Before other threads render; kvw_admin_start() does it. */
void kvw_metrics_set_sources(struct kvw_metrics *metrics,
	const struct kvw_metrics_sources *sources);

/* --- called by the loop that owns the shard --- */
void kvw_metrics_add(struct kvw_metrics_shard *shard, enum kvw_counter counter, uint64_t n);
void kvw_metrics_gauge(struct kvw_metrics_shard *shard, enum kvw_gauge gauge, int64_t delta);
void kvw_metrics_stream_gap(struct kvw_metrics_shard *shard, int64_t gap_ns); /* inter-token */
/* A prompt for a strategy that wants exact tokens: has it them, or why not. */
void kvw_metrics_inexact(struct kvw_metrics_shard *shard, enum kvw_inexact inexact);
/* Label of a class for the next two; name: of admission.classes, len 0: there are none.
 * Does not wait. */
uint8_t kvw_metrics_class(struct kvw_metrics_shard *shard, struct kvw_slice name);
void kvw_metrics_kept(struct kvw_metrics_shard *shard, uint8_t class, enum kvw_kept kept);
/* counter: one of KVW_COUNT_REFUSED_*, which is counted, too. */
void kvw_metrics_refused(
	struct kvw_metrics_shard *shard, uint8_t class, enum kvw_counter counter);
/* Label of a group for the next three and for records. Does not wait. */
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
/* The copy was `group`'s, the client's answer `of`'s. */
void kvw_metrics_group_fidelity(struct kvw_metrics_shard *shard, uint8_t group, uint8_t of,
	enum kvw_fidelity_result result, const struct kvw_fidelity_lengths *lengths);

const char *kvw_group_by_name(enum kvw_group_by by);
/* From the moment at which a request was sent; predicted_ns, actual_ns >= 0. */
void kvw_metrics_first_token(
	struct kvw_metrics_shard *shard, int64_t predicted_ns, int64_t actual_ns);
/* When the request came that has waited longest for a worker; 0: none waits. */
void kvw_metrics_oldest(struct kvw_metrics_shard *shard, int64_t came_ns);
/* At kvway, for a worker. */
void kvw_metrics_waited(struct kvw_metrics_shard *shard, int64_t wait_ns);
void kvw_metrics_token_wait(struct kvw_metrics_shard *shard, int64_t wait_ns); /* for them */
/* --- prefill and decode on different workers --- */
void kvw_metrics_pd_plan(struct kvw_metrics_shard *shard, enum kvw_pd_plan plan);
/* Tokens: 0 where they are not known. */
void kvw_metrics_pd_leg(struct kvw_metrics_shard *shard, enum kvw_pd_leg leg, int64_t took_ns,
	uint32_t prompt_tokens, uint32_t cached_tokens);
void kvw_metrics_pd_decode(struct kvw_metrics_shard *shard, enum kvw_pd_decode decode);
/* From the prefiller's last byte to the first one to the decoder. */
void kvw_metrics_pd_handover(struct kvw_metrics_shard *shard, int64_t took_ns);
/* From there to the first token. */
void kvw_metrics_pd_transfer(struct kvw_metrics_shard *shard, int64_t took_ns);

/* +1 where a request on this worker has its first token, -1 where that request ends. */
void kvw_metrics_decoding(struct kvw_metrics_shard *shard, uint32_t worker_id, int delta);
/* The worker has left, and its slot may have another one: its counters are 0 again.
 * Control thread. */
void kvw_metrics_forget(struct kvw_metrics *metrics, uint32_t worker_id);
/* Once per request, at its end. */
void kvw_metrics_record(struct kvw_metrics_shard *shard, const struct kvw_request_record *record);

/* --- any thread --- */
/* Sum of a gauge or counter over the shards. */
int64_t kvw_metrics_gauge_sum(const struct kvw_metrics *metrics, enum kvw_gauge gauge);
uint64_t kvw_metrics_counter_sum(const struct kvw_metrics *metrics, enum kvw_counter counter);

/* Tokens of one worker's answers since it came. */
struct kvw_worker_tokens {
	uint64_t prompt;            /* of all answers that say so */
	/* Answers that say how many were cached, and had a prediction. */
	uint64_t compared;
	uint64_t predicted, cached; /* of these: tokens */
};
void kvw_metrics_worker_tokens(
	const struct kvw_metrics *metrics, uint32_t worker_id, struct kvw_worker_tokens *out);

/* Prometheus text exposition 0.0.4. Caller frees *text. now_ns: monotonic. Called on a loop or on
 * the control thread, for which the fleet's view is safe to read. */
enum kvw_err kvw_metrics_render(struct kvw_metrics *metrics, int64_t now_ns, char **text,
	size_t *len) KVW_MUST_CHECK;

/* Control thread, about once a second: samples the counters from which rates are made. */
void kvw_metrics_tick(struct kvw_metrics *metrics, int64_t now_ns);

/* Label text, for example "no_tokens". */
const char *kvw_inexact_name(enum kvw_inexact inexact);
/* Label text, for example "engine". */
const char *kvw_reporter_name(enum kvw_reporter reporter);

/* --- the list itself, from metrics.def --- */
/* The i-th metric; NULL past the last. */
const struct kvw_metric_info *kvw_metric_info(size_t i);

/* Writes METRICS.md. */
void kvw_metrics_reference(FILE *out);

#endif
