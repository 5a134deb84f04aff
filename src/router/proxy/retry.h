/*
 * retry.h - decides whether a request that failed may be sent again, and where.
 *
 * RFC 9110 section 9.2.2: a request with a method that is not idempotent must not be repeated
 * unless it is known to be safe. An inference request is safe until its first token: until then its
 * only effect is work. Any other POST may be repeated only if none of it was written.
 *
 * A request under which two workers broke (their connection ended without an answer, or they
 * answered 5xx) goes to no third worker: some prompts break any engine that reads them.
 *
 * When one worker fails, its requests are repeated elsewhere; when a whole fleet fails, repeats
 * would multiply the load that broke it. So one account of all loops pays for repeats: each request
 * pays in the part retry.budget of a repeat, and each second pays in KVW_BUDGET_PER_S repeats. The
 * account holds the payments of the last 10 to 20 seconds, so that the requests that wait on a
 * dying worker find enough.
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
	KVW_RETRY_FRESH, /* same worker, new connection: the kept one was stale. Not counted. */
	KVW_RETRY_OTHER, /* another worker */
};

/* The facts known when a worker failed. */
struct kvw_retry_facts {
	bool first_token; /* the client has been or could have been sent a part of the answer */
	bool repeatable;       /* inference path */
	bool idempotent;       /* by method */
	bool request_held;     /* kvway still has every byte of the request */
	bool link_reused;      /* the connection had carried an earlier request */
	bool response_byte;    /* the connection brought a byte for this request */
	/* a timeout passed after the request was sent, so that the worker may be computing */
	bool waited_out;
	uint64_t link_written; /* bytes of this request written to it */
	uint32_t suspicions;   /* workers, including this one, that the request may have broken */
	uint32_t retries, retry_limit;
};

enum kvw_retry kvw_retry_decide(const struct kvw_retry_facts *facts);

/* --- the account --- */

#define KVW_BUDGET_PER_S 3
#define KVW_BUDGET_BATCH 32 /* requests that a loop may count before it pays them in */

struct kvw_budget {
	pthread_mutex_t mutex;
	double account;      /* repeats */
	double recent, last; /* payments in this period, and in the period before */
	int64_t paid_ns, period_ns;
};

/* Makes a full account. False: out of memory. */
bool kvw_budget_init(struct kvw_budget *budget, int64_t now_ns);
void kvw_budget_finish(struct kvw_budget *budget);

/* Pays in for requests, each the given share of a repeat, and for the passed time. */
void kvw_budget_pay(struct kvw_budget *budget, uint32_t requests, double share, int64_t now_ns);
/* Pays for one repeat, after kvw_budget_pay. False: the account is empty. */
bool kvw_budget_take(struct kvw_budget *budget);

#endif
