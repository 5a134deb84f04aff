/*
 * retry.h - may a request that failed go out again, and where?
 *
 * RFC 9110 section 9.2.2: a request with a method that is not idempotent must not be repeated unless
 * it is known to be safe. An inference request is until its first token: until then it has had no
 * effect but work. Any other POST may be repeated only if none of it was written.
 *
 * A request under which two workers broke (their connection ended without an answer, or they answered
 * 5xx) goes to no third: some prompts break any engine that reads them.
 */
#ifndef KVW_RETRY_H
#define KVW_RETRY_H

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
	bool first_token;      /* the client has been or could have been sent a part of the answer */
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

#endif
