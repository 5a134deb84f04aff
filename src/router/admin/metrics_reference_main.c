/*
 * metrics_reference_main.c - prints METRICS.md: kvw-metrics-reference > src/router/admin/METRICS.md
 */
#include "admin/metrics.h"

int main(void)
{
	kvw_metrics_reference(stdout);
	return ferror(stdout) ? 1 : 0;
}
