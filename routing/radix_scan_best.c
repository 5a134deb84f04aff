/*
 * radix_scan_best.c - which way of looking through holders this processor has.
 */
#include "routing/radix_scan.h"

const struct kvw_radix_scan *kvw_radix_scan_best(void)
{
#ifdef KVW_HAVE_AVX512
	if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bw"))
		return &kvw_radix_scan_avx512;
#endif
	return &kvw_radix_scan_base;
}
