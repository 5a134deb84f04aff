/*
 * explain_table.h - an explanation as a person reads it.
 */
#ifndef KVW_EXPLAIN_TABLE_H
#define KVW_EXPLAIN_TABLE_H

#include <stdio.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* json: what POST /explain answers with status 200.
 * KVW_EPROTO: it is not that; nothing was printed. */
enum kvw_err kvw_explain_table_print(struct kvw_slice json, FILE *out) KVW_MUST_CHECK;

/* The message of an error in OpenAI's form, to `err`; the text itself if it is none. */
void kvw_explain_error_print(long status, struct kvw_slice json, FILE *err);

#endif
