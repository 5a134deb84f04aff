/*
 * steps.h - how long a random history is: in full without a sanitizer, a quarter with one.
 *
 * A sanitizer makes each step several times slower and looks for what most steps have in common;
 * the build without one runs all of them.
 */
#ifndef KVW_TEST_STEPS_H
#define KVW_TEST_STEPS_H

#include <stdint.h>

/* KVT_TEST_SEES_RACES: built with ThreadSanitizer. */
#if defined(__SANITIZE_THREAD__)
#define KVT_TEST_SEES_RACES 1
#define KVT_TEST_SHARE      4
#elif defined(__SANITIZE_ADDRESS__)
#define KVT_TEST_SHARE 4
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVT_TEST_SEES_RACES 1
#define KVT_TEST_SHARE      4
#elif __has_feature(address_sanitizer)
#define KVT_TEST_SHARE 4
#endif
#endif
#ifndef KVT_TEST_SEES_RACES
#define KVT_TEST_SEES_RACES 0
#endif
#ifndef KVT_TEST_SHARE
#define KVT_TEST_SHARE 1
#endif

/* At least 1 of a number that is not 0. */
static inline uint64_t kvt_test_steps(uint64_t full)
{
	return (full + KVT_TEST_SHARE - 1) / KVT_TEST_SHARE;
}

#endif
