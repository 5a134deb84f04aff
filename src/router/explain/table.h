/*
 * table.h - prints an explanation for people.
 */
#ifndef KVW_EXPLAIN_TABLE_H
#define KVW_EXPLAIN_TABLE_H

#include <stdio.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* json is the answer of POST /explain with status 200. KVW_EPROTO: it has another format, and
 * nothing was printed. */
enum kvw_err kvw_explain_table_print(struct kvw_slice json, FILE *out) KVW_MUST_CHECK;

#endif
