/* retry.c - see retry.h. */
#include "proxy/retry.h"

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
