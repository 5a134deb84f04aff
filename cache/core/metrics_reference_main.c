/*
 * metrics_reference_main.c - prints METRICS.md (ninja -C BUILD cache-metrics-reference)
 */
#include "core/cache_metrics.h"

int main(void)
{
	kvt_metrics_reference(stdout);
	return ferror(stdout) ? 1 : 0;
}
