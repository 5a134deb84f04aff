/*
 * metrics_reference_main.c - prints METRICS.md: kvt-metrics-reference > cache/METRICS.md
 */
#include "core/cache_metrics.h"

int main(void)
{
	kvt_metrics_reference(stdout);
	return ferror(stdout) ? 1 : 0;
}
