/*
 * budget.h - how many requests may be sent to another worker.
 *
 * When one worker fails, its requests are repeated elsewhere; when a whole fleet fails, repeats would
 * multiply the load that it fails under. So repeats are paid from one account of all loops: each request
 * pays in retry.budget of a repeat, each second KVW_BUDGET_PER_S. The account holds what the last 10 to
 * 20 seconds paid in, so that the requests that wait on a worker that dies find enough.
 *
 * Threads: any; a mutex, taken every KVW_BUDGET_BATCH requests of a loop, and for a repeat.
 */
#ifndef KVW_BUDGET_H
#define KVW_BUDGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define KVW_BUDGET_PER_S 3
#define KVW_BUDGET_BATCH 32 /* requests that a loop may count before it pays them in */

struct kvw_budget {
	pthread_mutex_t mutex;
	double account;      /* repeats */
	double recent, last; /* paid in: in this period, in the one before */
	int64_t paid_ns, period_ns;
};

/* False: out of memory. The account is full. */
bool kvw_budget_init(struct kvw_budget *budget, int64_t now_ns);
void kvw_budget_finish(struct kvw_budget *budget);

/* Pays in for requests, each the given share of a repeat, and for the time. */
void kvw_budget_pay(struct kvw_budget *budget, uint32_t requests, double share, int64_t now_ns);
/* One repeat, after kvw_budget_pay. False: the account is empty. */
bool kvw_budget_take(struct kvw_budget *budget);

#endif
