/* record.c - data about one request at its end, from which metrics and the access log are made. */
#include "base/record.h"

const char *kvw_end_name(enum kvw_end end)
{
	static const char *const names[KVW_END_COUNT] = {
		[KVW_END_COMPLETE] = "complete",
		[KVW_END_LOCAL] = "local",
		[KVW_END_CLIENT_GONE] = "client_gone",
		[KVW_END_UPSTREAM_LOST] = "upstream_lost",
		[KVW_END_TIMEOUT] = "timeout",
		[KVW_END_SHUTDOWN] = "shutdown",
	};

	return end < KVW_END_COUNT ? names[end] : "unknown";
}
