/* retry.c - decides whether a request that failed may be sent again, and where. */
#include "proxy/retry.h"

#include "base/clock.h"

#define PERIOD_NS (10 * KVW_NS_PER_S)

enum kvw_retry kvw_retry_decide(const struct kvw_retry_facts *facts)
{
	bool safe = facts->repeatable || facts->idempotent || facts->link_written == 0;

	if (facts->first_token || !facts->request_held || !safe || facts->waited_out)
		return KVW_RETRY_NO;
	if (facts->link_reused && !facts->response_byte)
		return KVW_RETRY_FRESH;
	if (facts->suspicions >= KVW_RETRY_SUSPICIONS)
		return KVW_RETRY_NO;
	return facts->retries < facts->retry_limit ? KVW_RETRY_OTHER : KVW_RETRY_NO;
}

/* --- the account --- */

bool kvw_budget_init(struct kvw_budget *budget, int64_t now_ns)
{
	double full = KVW_BUDGET_PER_S * 10.0;

	*budget = (struct kvw_budget){
		.account = full, .last = full, .paid_ns = now_ns, .period_ns = now_ns};
	return pthread_mutex_init(&budget->mutex, NULL) == 0;
}

void kvw_budget_finish(struct kvw_budget *budget)
{
	pthread_mutex_destroy(&budget->mutex);
}

/* Ends a period that is over; after two periods without a call no payment is recent. */
static void turn_period(struct kvw_budget *budget, int64_t now_ns)
{
	int64_t age_ns = now_ns - budget->period_ns;

	if (age_ns < PERIOD_NS)
		return;
	budget->last = age_ns < 2 * PERIOD_NS ? budget->recent : 0;
	budget->recent = 0;
	budget->period_ns = now_ns;
}

void kvw_budget_pay(struct kvw_budget *budget, uint32_t requests, double share, int64_t now_ns)
{
	double seconds, paid, most;

	pthread_mutex_lock(&budget->mutex);
	seconds = (double)(now_ns - budget->paid_ns) / (double)KVW_NS_PER_S;
	/* bounded, since the loops' clocks are not read at the same time */
	seconds = seconds < 0 ? 0 : seconds > 10 ? 10 : seconds;
	turn_period(budget, now_ns);
	paid = share * requests + KVW_BUDGET_PER_S * seconds;
	budget->recent += paid;
	budget->account += paid;
	most = budget->recent + budget->last;
	if (most < KVW_BUDGET_PER_S * 10.0)
		most = KVW_BUDGET_PER_S * 10.0;
	if (budget->account > most)
		budget->account = most;
	if (now_ns > budget->paid_ns)
		budget->paid_ns = now_ns;
	pthread_mutex_unlock(&budget->mutex);
}

bool kvw_budget_take(struct kvw_budget *budget)
{
	bool enough;

	pthread_mutex_lock(&budget->mutex);
	enough = budget->account >= 1;
	if (enough)
		budget->account -= 1;
	pthread_mutex_unlock(&budget->mutex);
	return enough;
}
