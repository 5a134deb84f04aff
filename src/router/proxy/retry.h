/*
 * retry.h - may a request that failed go out again, and where?
 *
 * RFC 9110 section 9.2.2: a request with a method that is not idempotent must not be repeated
 * unless it is known to be safe. An inference request is until its first token: until then it has
 * had no effect but work. Any other POST may be repeated only if none of it was written.
 *
 * A request under which two workers broke (their connection ended without an answer, or they
 * answered 5xx) goes to no third: some prompts break any engine that reads them.
 *
 * When one worker fails, its requests are repeated elsewhere; when a whole fleet fails, repeats
 * would multiply the load that it fails under. So repeats are paid from one account of all loops:
 * each request pays in retry.budget of a repeat, each second KVW_BUDGET_PER_S. The account holds
 * what the last 10 to 20 seconds paid in, so that the requests that wait on a worker that dies find
 * enough.
 *
 * Threads: any. The account has a mutex, taken every KVW_BUDGET_BATCH requests of a loop, and for a
 * repeat.
 */
#ifndef KVW_RETRY_H
#define KVW_RETRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define KVW_RETRY_SUSPICIONS 2

enum kvw_retry {
	KVW_RETRY_NO,
	KVW_RETRY_FRESH, /* same worker, new connection: a kept one was stale. Not counted. */
	KVW_RETRY_OTHER, /* another worker */
};

/* What is known when a worker failed. */
struct kvw_retry_facts {
	bool first_token; /* the client has been or could have been sent a part of the answer */
	bool repeatable;       /* inference path */
	bool idempotent;       /* by method */
	bool request_held;     /* we still have every byte of it */
	bool link_reused;      /* the connection had served before */
	bool response_byte;    /* it brought a byte for this request */
	bool waited_out;       /* a timeout after the request was sent: the work may be under way */
	uint64_t link_written; /* bytes of this request written to it */
	uint32_t suspicions;   /* workers, this one too, that the request may have broken */
	uint32_t retries, retry_limit;
};

enum kvw_retry kvw_retry_decide(const struct kvw_retry_facts *facts);

/* --- the account --- */

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
