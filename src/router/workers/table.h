/*
 * table.h - prints workers as a table.
 */
#ifndef KVW_WORKERS_TABLE_H
#define KVW_WORKERS_TABLE_H

#include <stdio.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* json is the answer of GET /workers, or a single worker. KVW_EPROTO: it has another form, and
 * nothing was printed. */
enum kvw_err kvw_workers_table_print(struct kvw_slice json, FILE *out) KVW_MUST_CHECK;

#endif
