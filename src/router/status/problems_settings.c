/*
 * problems_settings.c - finds what is wrong with kvway itself and with what it depends on: its
 * loops, files, certificates, Redis, sources of workers, keys.
 */
#include <time.h>

#include "auth/auth.h"
#include "auth/jwt_gate.h"
#include "base/log.h"
#include "fleet/members.h"
#include "admin/reload.h"
#include "sharing/sharing.h"
#include "state/state.h"
#include "status/problems.h"

#define EXPIRES_SOON_S (INT64_C(14) * 24 * 3600)

#define DEPS(problems) ((problems)->facts->admin->deps)

static void find_process(struct kvw_problems *problems)
{
	const struct kvw_admin_deps *deps = DEPS(problems);

	for (size_t i = 0; i < deps->loop_count; i++) {
		int64_t turn_ns = atomic_load(&deps->loop_turn_ns[i]);
		int64_t age_ns = problems->facts->now_ns - turn_ns;

		if (turn_ns != 0 && age_ns > KVW_LOOP_STUCK_NS)
			kvw_problem_add(problems, KVW_SEVERITY_ERROR, "loop_stuck", NULL,
				"Event loop %zu has not turned for %.0f s.\n"
				"kvway is stuck, or the machine gives it no time.\n"
				"Restart it if the machine is idle, and report it with a stack "
				"(gdb -p PID).",
				i, (double)age_ns / KVW_NS_PER_S);
	}
	if (problems->facts->admin->draining)
		kvw_problem_add(problems, KVW_SEVERITY_NOTE, "draining", NULL,
			"This kvway ends: it takes no new requests.\n"
			"It got SIGTERM, or another process has taken its address over.\n"
			"Nothing.");
}

static void find_reload(struct kvw_problems *problems)
{
	const struct kvw_reload_state *reload = problems->facts->admin->reload;
	const char *path = DEPS(problems)->config_path;
	unsigned restart = atomic_load(&reload->need_restart);

	if (atomic_load(&reload->last_refused))
		kvw_problem_add(problems, KVW_SEVERITY_WARNING, "reload_refused", NULL,
			"The last reload was refused: what was in force before still is.\n"
			"The configuration file has a mistake.\n"
			"kvway check -c %s names it; then reload again.",
			path == NULL ? "FILE" : path);
	if (restart > 0)
		kvw_problem_add(problems, KVW_SEVERITY_NOTE, "restart_needed", NULL,
			"%u key%s of the configuration file %s not in force.\n"
			"A reload cannot change them.\n"
			"Restart kvway, or replace it without a lost request: SIGUSR2.",
			restart, restart == 1 ? "" : "s", restart == 1 ? "is" : "are");
}

static void on_certificate(void *arg, const char *use, const char *path, int64_t not_after_s)
{
	struct kvw_problems *problems = arg;
	int64_t left_s = not_after_s - kvw_clock_wall_ns() / KVW_NS_PER_S;
	bool expired = left_s <= 0;
	time_t end = (time_t)not_after_s;
	char day[32];
	struct tm utc;

	if (left_s > EXPIRES_SOON_S)
		return;
	gmtime_r(&end, &utc);
	strftime(day, sizeof(day), "%Y-%m-%d %H:%M UTC", &utc);
	kvw_problem_add(problems, expired ? KVW_SEVERITY_ERROR : KVW_SEVERITY_WARNING,
		expired ? "certificate_expired" : "certificate_expires", NULL,
		"The certificate in %s %s (%s)%s.\n"
		"It is valid until %s.\n"
		"Put a new one in its place: kvway looks at the file every second.",
		path, expired ? "has expired" : "will expire soon", use,
		expired ? ": peers refuse it" : "", day);
}

static void find_state(struct kvw_problems *problems)
{
	const struct kvw_state *state = DEPS(problems)->state;
	const struct kvw_state_status *status = state == NULL ? NULL : kvw_state_status(state);
	const char *path = DEPS(problems)->config->state_file;

	if (status == NULL)
		return;
	if (atomic_load(&status->last_failed))
		kvw_problem_add(problems, KVW_SEVERITY_WARNING, "state_not_written", NULL,
			"What kvway has learned is not being saved.\n"
			"The last snapshot could not be written to %s.\n"
			"Look at the folder's space and permissions; the log names the error.",
			path);
	if (status->recalled == KVW_STATE_REFUSED)
		kvw_problem_add(problems, KVW_SEVERITY_NOTE, "state_refused", NULL,
			"kvway started without what it had learned before.\n"
			"The snapshot was not used: %s.\n"
			"Nothing: it learns again. kvway state %s looks into the file.",
			status->why, path);
}

static void add_redis(struct kvw_problems *problems, const char *what, const char *why)
{
	kvw_problem_add(problems, KVW_SEVERITY_WARNING, "redis_lost", NULL,
		"This replica %s.\n"
		"%s.\n"
		"Start that Redis again, or look at the network to it; the log names the error.",
		what, why);
}

static void find_redis(struct kvw_problems *problems)
{
	const struct kvw_sharing *limits = DEPS(problems)->sharing;
	const struct kvw_sharing *load = DEPS(problems)->load_sharing;
	const struct kvw_sharing_state *limit_state =
		limits == NULL ? NULL : kvw_sharing_state(limits);
	const struct kvw_load_state *load_state =
		load == NULL ? NULL : kvw_sharing_load_state(load);

	if (limit_state != NULL && !atomic_load(&limit_state->working) &&
		atomic_load(&limit_state->failed) > 0)
		add_redis(problems, "counts limits alone", "rate_sharing.redis does not answer");
	if (load_state != NULL && atomic_load(&load_state->degraded))
		add_redis(problems, "knows only its own load",
			"replicas.redis has not answered for replicas.life");
}

static void find_sources(struct kvw_problems *problems)
{
	const struct kvw_member_listing *listings = problems->facts->admin->listings;

	for (int i = 0; listings != NULL && i < KVW_SOURCE_COUNT; i++) {
		uint64_t seconds =
			kvw_member_listing_unreadable_s(&listings[i], problems->facts->now_ns);

		if (seconds > 0)
			kvw_problem_add(problems, KVW_SEVERITY_WARNING, "source_unreadable", NULL,
				"New workers are not noticed, nor ones that left.\n"
				"The source `%s` cannot be read for %llu s; its last list holds.\n"
				"The log names the error (discovery).",
				kvw_member_source_name((enum kvw_member_source)i),
				(unsigned long long)seconds);
	}
}

static void find_keys(struct kvw_problems *problems)
{
	const struct kvw_auth *auth = DEPS(problems)->auth;
	const struct kvw_jwt_gate *gate = auth == NULL ? NULL : kvw_auth_jwt(auth);

	if (auth != NULL && atomic_load(&kvw_auth_state(auth)->last_refused))
		kvw_problem_add(problems, KVW_SEVERITY_WARNING, "keys_refused", NULL,
			"The file of keys has changed and is not in force.\n"
			"It has a mistake: the keys before it still hold.\n"
			"kvway check names it.");
	if (gate != NULL &&
		kvw_jwt_keys_age_s(kvw_jwt_gate_state(gate)->keys, problems->facts->now_ns) < 0)
		kvw_problem_add(problems, KVW_SEVERITY_ERROR, "token_keys_missing", NULL,
			"Clients' tokens cannot be verified: they get 503.\n"
			"The keys of auth.jwt were never fetched.\n"
			"Look at auth.jwt.jwks_url from this machine, or at auth.jwt.jwks_file; "
			"the log names the error.");
}

static void find_drops(struct kvw_problems *problems)
{
	const struct kvw_access_log *log = DEPS(problems)->access_log;
	uint64_t lines = kvw_log_dropped() + (log == NULL ? 0 : kvw_access_log_dropped(log));

	if (lines > 0)
		kvw_problem_add(problems, KVW_SEVERITY_NOTE, "log_dropped", NULL,
			"%llu lines of the logs were dropped since the start.\n"
			"What they are written to does not keep up, or is full.\n"
			"Look at that disk or pipe; log.ring holds more lines.",
			(unsigned long long)lines);
}

void kvw_problems_of_settings(struct kvw_problems *problems)
{
	find_process(problems);
	find_reload(problems);
	kvw_tls_watch_each(&DEPS(problems)->fleet->certificates, on_certificate, problems);
	find_state(problems);
	find_redis(problems);
	find_sources(problems);
	find_keys(problems);
	find_drops(problems);
}
