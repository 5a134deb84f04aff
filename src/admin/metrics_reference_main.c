/*
 * metrics_reference_main.c - prints METRICS.md: kvw-metrics-reference > src/admin/METRICS.md
 */
#include "metrics.h"

int main(void)
{
	kvw_metrics_reference(stdout);
	return ferror(stdout) ? 1 : 0;
}
