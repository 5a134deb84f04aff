/*
 * head_testing.h - what the tests of heads share.
 */
#ifndef KVW_HEAD_TESTING_H
#define KVW_HEAD_TESTING_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/head.h"

/* Parses a copy that ends where its memory ends, so that a sanitizer sees a read past it. The copy
 * replaces *kept, which the caller frees after its last look at the head. */
static inline enum kvw_err parse_copy(struct kvw_head *head, struct kvw_slice text, bool response,
	bool to_head, struct kvw_head_error *error, char **kept)
{
	free(*kept);
	*kept = malloc(text.len > 0 ? text.len : 1);
	ck_assert_ptr_nonnull(*kept);
	memcpy(*kept, text.data, text.len);
	if (response)
		return kvw_head_parse_response(head, *kept, text.len, to_head, error);
	return kvw_head_parse_request(head, *kept, text.len, error);
}

static inline void check_slice(struct kvw_slice got, const char *expected)
{
	ck_assert_msg(kvw_slice_equal(got, kvw_slice_of(expected)), "got '%.*s', expected '%s'",
		(int)got.len, got.data == NULL ? "" : got.data, expected);
}

#endif
