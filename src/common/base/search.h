/*
 * search.h - binary search in a sorted array.
 *
 * Unlike bsearch(3), the search also returns the position of a missing key. It is inlined with its
 * comparison, so that it costs no more than a hand-written loop.
 */
#ifndef KVW_SEARCH_H
#define KVW_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "kvway/slice.h"

/* Compares the key to the item at an index of the array. Below 0: the key comes first; 0: they are
 * equal. */
typedef int kvw_search_fn(const void *key, const void *items, size_t at);

/* Returns the index of the key among `count` items in ascending order, or the index at which it
 * would have to be inserted. */
static inline size_t kvw_search(
	const void *key, const void *items, size_t count, kvw_search_fn *compare, bool *there)
{
	size_t low = 0, high = count;

	*there = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = compare(key, items, middle);

		if (order == 0) {
			*there = true;
			return middle;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Compares by bytes a text with a length, which may contain NULs, with a text that ends in a NUL.
 * If one is the beginning of the other, the shorter one comes first. */
static inline int kvw_search_order(struct kvw_slice text, const char *other)
{
	size_t len = strlen(other), least = text.len < len ? text.len : len;
	int order = least == 0 ? 0 : memcmp(text.data, other, least);

	return order != 0 ? order : (text.len > len) - (text.len < len);
}

#endif
