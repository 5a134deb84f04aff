/*
 * problems_traffic.c - finds what is wrong with requests: overload, refusals, failures, broken
 * promises, models that no worker has. What was counted is of the last 5 minutes.
 */
#include <string.h>

#include "base/page.h"
#include "status/problems.h"

#define RECENT_NS    (5 * 60 * KVW_NS_PER_S)
#define WAIT_LEAST_S 1.0  /* a shorter wait is no problem */
#define FEW          20   /* fewer requests show no share */
#define MISSED_SHARE 0.05 /* of promises */
#define FAILED_SHARE 0.01 /* of requests */
#define NAMES_ROOM   600

/* Returns what came lately. */
static uint64_t recent(const struct kvw_problems *problems, enum kvw_total total)
{
	const struct kvw_problem_facts *facts = problems->facts;

	return kvw_history_grown(
		&kvw_history_before(facts->history, RECENT_NS, facts->now_ns)->totals,
		facts->totals, total);
}

/* Reasons for which requests are refused. */
static const struct {
	enum kvw_total total;
	enum kvw_severity severity;
	const char *code, *what, *why, *todo;
} refusals[] = {
	{KVW_TOTAL_SERVICE_LEVEL, KVW_SEVERITY_WARNING, "refused_service_level",
		"requests were refused with 429 because their promise could not be kept.",
		"Overload: the workers have more to do than they can finish in the time that "
		"service_level promises.",
		"Add workers, or promise more time (service_level.ttft, ttft_per_1k_tokens, "
		"tpot)."},
	{KVW_TOTAL_DEADLINE, KVW_SEVERITY_WARNING, "refused_deadline",
		"requests were refused with 429 because they waited too long.",
		"Overload: no worker had room within admission.max_wait, or within the deadline "
		"that the client has set.",
		"Add workers, or a longer admission.max_wait. kvway trace shows what each waited "
		"for."},
	{KVW_TOTAL_QUEUE_FULL, KVW_SEVERITY_WARNING, "refused_queue_full",
		"requests were refused with 429 because the queue was full.",
		"Overload: admission.max_queue requests of their model waited already.",
		"Add workers of that model, or a larger admission.max_queue."},
	{KVW_TOTAL_ENGINE_FULL, KVW_SEVERITY_WARNING, "engine_full",
		"times workers did not take a request because they were full.",
		"Overload: the engines' own limits are reached (429, or 503 with Retry-After).",
		"Add workers, or raise the engines' limits (vLLM: --max-num-seqs, "
		"--max-num-queued-reqs)."},
	{KVW_TOTAL_BODY_MEMORY, KVW_SEVERITY_WARNING, "refused_body_memory",
		"requests were refused because the memory for bodies was used up.",
		"Clients make kvway hold more than limits.body_memory.",
		"Raise limits.body_memory if the machine has more memory."},
	{KVW_TOTAL_CONNECTIONS, KVW_SEVERITY_WARNING, "refused_connections",
		"connections of clients were closed at once.",
		"limits.connections, or the process's limit of descriptors, is reached.",
		"Raise limits.connections and the limit of descriptors (ulimit -n, LimitNOFILE)."},
	{KVW_TOTAL_DESCRIPTORS, KVW_SEVERITY_WARNING, "out_of_descriptors",
		"times no descriptor was left for a connection.",
		"The process's limit of descriptors is reached.",
		"Raise it (ulimit -n, LimitNOFILE of the service), and restart kvway."},
	{KVW_TOTAL_RATE, KVW_SEVERITY_NOTE, "refused_rate",
		"requests were refused with 429 by a limit of their key, tenant or model.",
		"They ask for more than that limit allows.",
		"Nothing, if the limit is meant so; else raise it in the file of keys or in "
		"rate_limits."},
	{KVW_TOTAL_KEY, KVW_SEVERITY_NOTE, "refused_key",
		"requests were refused because of their key.",
		"It is missing, unknown or expired, or may not use the path or model: "
		"kvway_auth_refused_total counts by reason.",
		"Give the client a key of auth.keys_file: kvway key new NAME."},
};

static void find_refusals(struct kvw_problems *problems)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		uint64_t n = recent(problems, refusals[i].total);

		if (n > 0)
			kvw_problem_add(problems, refusals[i].severity, refusals[i].code, NULL,
				"In the last 5 minutes %llu %s\n"
				"%s\n"
				"%s",
				(unsigned long long)n, refusals[i].what, refusals[i].why,
				refusals[i].todo);
	}
}

static void find_waiting(struct kvw_problems *problems)
{
	const struct kvw_metrics_totals *now = problems->facts->totals;
	size_t usable = kvw_fleet_usable_count(problems->facts->admin->deps->fleet);

	if (now->waiting == 0 || now->oldest_s < WAIT_LEAST_S || usable == 0)
		return;
	kvw_problem_add(problems, KVW_SEVERITY_WARNING, "overload", NULL,
		"%llu request%s wait at kvway, the oldest for %.0f s.\n"
		"Overload: the %zu usable worker%s cannot take more now.\n"
		"Add workers, or bring those back that are out. kvway trace --slow 1000 shows what "
		"each request waits for.",
		(unsigned long long)now->waiting, now->waiting == 1 ? "" : "s", now->oldest_s,
		usable, usable == 1 ? "" : "s");
}

static void find_promises(struct kvw_problems *problems)
{
	uint64_t kept = recent(problems, KVW_TOTAL_KEPT), late = recent(problems, KVW_TOTAL_LATE);
	uint64_t slow = recent(problems, KVW_TOTAL_SLOW);
	uint64_t broken = recent(problems, KVW_TOTAL_BROKEN), all = kept + late + slow + broken;

	if (all < FEW || (double)(all - kept) < MISSED_SHARE * (double)all)
		return;
	kvw_problem_add(problems, KVW_SEVERITY_WARNING, "promises_missed", NULL,
		"In the last 5 minutes %.0f %% of %llu promises were not kept.\n"
		"First token late: %llu, tokens too slow: %llu, failed or refused: %llu.\n"
		"Late and refused: add workers. Too slow: fewer requests on each "
		"(service_level.tpot), or faster workers.",
		100 * (double)(all - kept) / (double)all, (unsigned long long)all,
		(unsigned long long)late, (unsigned long long)slow, (unsigned long long)broken);
}

static void find_failures(struct kvw_problems *problems)
{
	uint64_t failed = recent(problems, KVW_TOTAL_FAILED), all = failed;

	for (int total = KVW_TOTAL_OK; total < KVW_TOTAL_FAILED; total++)
		all += recent(problems, (enum kvw_total)total);
	if (failed == 0 || (double)failed < FAILED_SHARE * (double)all)
		return;
	kvw_problem_add(problems, KVW_SEVERITY_ERROR, "failures", NULL,
		"In the last 5 minutes %llu of %llu requests failed.\n"
		"They ended with 5xx, a timeout, or an answer that broke off.\n"
		"kvway trace --status 5xx shows each with its cause.",
		(unsigned long long)failed, (unsigned long long)all);
}

/* Writes names of models that workers have. */
static void put_names(const struct kvw_fleet *fleet, char names[NAMES_ROOM])
{
	const struct kvw_fleet_view *view = atomic_load(&fleet->view);
	size_t used = 0, shown = 0, all = view == NULL ? 0 : view->model_count;

	names[0] = '\0';
	for (size_t i = 0; i < all && used < NAMES_ROOM / 2; i++, shown++)
		used += (size_t)snprintf(names + used, NAMES_ROOM - used, "%s`%.200s`",
			i == 0 ? "" : ", ", view->models[i].model->name);
	if (shown < all)
		(void)snprintf(names + used, NAMES_ROOM - used, " and %zu more", all - shown);
}

/* Returns whether some worker has a model of this name by now. */
static bool is_there(const struct kvw_fleet *fleet, const struct kvw_seen_model *model)
{
	const struct kvw_fleet_view *view = atomic_load(&fleet->view);

	for (size_t i = 0; view != NULL && i < view->model_count; i++)
		if (kvw_slice_equal(kvw_slice_of(view->models[i].model->name),
			    (struct kvw_slice){model->name, model->len}))
			return true;
	return false;
}

static void find_unknown_models(struct kvw_problems *problems)
{
	const struct kvw_problem_facts *facts = problems->facts;
	char names[NAMES_ROOM];

	put_names(facts->admin->deps->fleet, names);
	for (size_t i = 0; i < facts->seen->model_count; i++) {
		const struct kvw_seen_model *model = &facts->seen->models[i];

		if (facts->now_ns - model->asked_ns > KVW_SEEN_MODEL_NS ||
			is_there(facts->admin->deps->fleet, model))
			continue;
		kvw_problem_add(problems, KVW_SEVERITY_WARNING, "unknown_model", NULL,
			"Clients ask for the model `%.*s`, which no worker has; %llu request%s got "
			"404.\n"
			"The name is wrong, or a worker does not serve it. Workers have: %s.\n"
			"Let clients use one of these names, or give the model a second name in "
			"`models`.",
			(int)model->len, model->name, (unsigned long long)model->asked,
			model->asked == 1 ? "" : "s", names[0] == '\0' ? "none" : names);
	}
}

void kvw_problems_of_traffic(struct kvw_problems *problems)
{
	find_failures(problems);
	find_waiting(problems);
	find_refusals(problems);
	find_promises(problems);
	find_unknown_models(problems);
}
