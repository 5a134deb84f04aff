/* collect_auth.c - writes samples about clients' keys and limits. */
#include <stdlib.h>

#include "admin/collect.h"
#include "auth/auth.h"
#include "sharing/sharing.h"
#include "auth/jwt_gate.h"
#include "base/clock.h"

void kvw_collect_auth_refused(struct kvw_collect *collect)
{
	static const struct {
		const char *reason;
		enum kvw_counter counter;
	} reasons[] = {
		{"missing", KVW_COUNT_AUTH_MISSING},
		{"scheme", KVW_COUNT_AUTH_SCHEME},
		{"twice", KVW_COUNT_AUTH_TWICE},
		{"query", KVW_COUNT_AUTH_QUERY},
		{"unknown", KVW_COUNT_AUTH_UNKNOWN},
		{"expired", KVW_COUNT_AUTH_EXPIRED},
		{"path", KVW_COUNT_AUTH_PATH},
		{"model", KVW_COUNT_AUTH_MODEL},
		{"tenant", KVW_COUNT_AUTH_TENANT},
	};

	if (collect->metrics->sources.auth == NULL)
		return;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		kvw_sample_named(&collect->out, "reason", reasons[i].reason,
			kvw_metrics_counter_sum(collect->metrics, reasons[i].counter));
}

void kvw_collect_bodies_changed(struct kvw_collect *collect)
{
	kvw_sample_named(&collect->out, "reason", "cache_salt",
		kvw_metrics_counter_sum(collect->metrics, KVW_COUNT_BODY_SALTED));
	kvw_sample_named(&collect->out, "reason", "model",
		kvw_metrics_counter_sum(collect->metrics, KVW_COUNT_BODY_RENAMED));
	kvw_sample_named(&collect->out, "reason", "engine_fields",
		kvw_metrics_counter_sum(collect->metrics, KVW_COUNT_BODY_STRIPPED));
}

void kvw_collect_auth_reloads(struct kvw_collect *collect)
{
	const struct kvw_auth_state *state = collect->metrics->sources.auth;

	if (state == NULL)
		return;
	kvw_sample_named(&collect->out, "result", "ok", atomic_load(&state->ok));
	kvw_sample_named(&collect->out, "result", "refused", atomic_load(&state->refused));
}

void kvw_collect_auth(struct kvw_collect *collect)
{
	const struct kvw_auth_state *state = collect->metrics->sources.auth;

	if (state == NULL)
		return;
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_AUTH_KEYS:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&state->keys));
		break;
	case KVW_OF_AUTH_GOOD:
		kvw_sample_u64(&collect->out, NULL, 0, !atomic_load(&state->last_refused));
		break;
	case KVW_OF_AUTH_TIME:
		kvw_sample_u64(&collect->out, NULL, 0, (uint64_t)atomic_load(&state->last_ok_s));
		break;
	default:
		abort(); /* cannot happen: metrics.def gives this collector another arg */
	}
}

void kvw_collect_rate_limited(struct kvw_collect *collect)
{
	static const struct {
		const char *limit;
		enum kvw_counter counter;
	} limits[] = {
		{"requests", KVW_COUNT_RATE_REQUESTS},
		{"tokens", KVW_COUNT_RATE_TOKENS},
		{"tokens_per_day", KVW_COUNT_RATE_DAY},
		{"concurrent", KVW_COUNT_RATE_CONCURRENT},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		kvw_sample_named(&collect->out, "limit", limits[i].limit,
			kvw_metrics_counter_sum(collect->metrics, limits[i].counter));
}

void kvw_collect_rate_sharing(struct kvw_collect *collect)
{
	const struct kvw_sharing_state *state = collect->metrics->sources.sharing;

	if (state == NULL)
		return;
	if (collect->arg == KVW_OF_SHARING_GOOD) {
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&state->working));
		return;
	}
	kvw_sample_named(&collect->out, "result", "ok", atomic_load(&state->exchanged));
	kvw_sample_named(&collect->out, "result", "failed", atomic_load(&state->failed));
}

void kvw_collect_replicas(struct kvw_collect *collect)
{
	const struct kvw_load_state *state = collect->metrics->sources.load;

	if (state == NULL)
		return;
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_PEERS:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&state->peers));
		break;
	case KVW_OF_PEERS_AGE:
		kvw_sample_double(
			&collect->out, NULL, 0, (double)atomic_load(&state->oldest_ns) / 1e9);
		break;
	case KVW_OF_PEERS_TRUST:
		kvw_sample_double(&collect->out, NULL, 0, (double)atomic_load(&state->trust));
		break;
	case KVW_OF_PEERS_DEGRADED:
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&state->degraded));
		break;
	case KVW_OF_PEERS_COMMANDS:
		kvw_sample_named(&collect->out, "result", "ok", atomic_load(&state->ok));
		kvw_sample_named(&collect->out, "result", "failed", atomic_load(&state->failed));
		break;
	case KVW_OF_PEERS_BYTES:
		kvw_sample_named(
			&collect->out, "direction", "sent", atomic_load(&state->said_bytes));
		kvw_sample_named(
			&collect->out, "direction", "received", atomic_load(&state->heard_bytes));
		break;
	default:
		kvw_sample_named(&collect->out, "what", "new", atomic_load(&state->heard_new));
		kvw_sample_named(&collect->out, "what", "old", atomic_load(&state->heard_old));
		kvw_sample_named(&collect->out, "what", "bad", atomic_load(&state->heard_bad));
		kvw_sample_named(&collect->out, "what", "full", atomic_load(&state->heard_full));
	}
}

void kvw_collect_jwt_verified(struct kvw_collect *collect)
{
	const struct kvw_jwt_gate_state *state = collect->metrics->sources.jwt;

	if (state == NULL)
		return;
	kvw_sample_named(&collect->out, "by", "signature", atomic_load(&state->verified));
	kvw_sample_named(&collect->out, "by", "memory", atomic_load(&state->remembered));
}

void kvw_collect_jwt_refused(struct kvw_collect *collect)
{
	const struct kvw_jwt_gate_state *state = collect->metrics->sources.jwt;

	for (int i = KVW_JWT_GOOD + 1; state != NULL && i < KVW_JWT_VERDICTS; i++)
		kvw_sample_named(&collect->out, "reason",
			kvw_jwt_verdict_name((enum kvw_jwt_verdict)i),
			atomic_load(&state->refused[i]));
}

void kvw_collect_jwt_refreshes(struct kvw_collect *collect)
{
	const struct kvw_jwt_gate_state *state = collect->metrics->sources.jwt;

	if (state == NULL)
		return;
	kvw_sample_named(&collect->out, "result", "ok", atomic_load(&state->keys->ok));
	kvw_sample_named(&collect->out, "result", "failed", atomic_load(&state->keys->failed));
}

void kvw_collect_jwt(struct kvw_collect *collect)
{
	const struct kvw_jwt_gate_state *state = collect->metrics->sources.jwt;
	int64_t age_s;

	if (state == NULL)
		return;
	if (collect->arg == KVW_OF_JWT_KEYS) {
		kvw_sample_u64(&collect->out, NULL, 0, atomic_load(&state->keys->keys));
		return;
	}
	age_s = kvw_jwt_keys_age_s(state->keys, kvw_clock_ns());
	if (age_s >= 0)
		kvw_sample_u64(&collect->out, NULL, 0, (uint64_t)age_s);
}
