/*
 * metrics_reference_main.c - prints METRICS.md (ninja -C BUILD metrics-reference)
 */
#include "admin/metrics.h"

int main(void)
{
	kvw_metrics_reference(stdout);
	return ferror(stdout) ? 1 : 0;
}
