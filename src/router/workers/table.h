/*
 * table.h - workers as a person reads them.
 */
#ifndef KVW_WORKERS_TABLE_H
#define KVW_WORKERS_TABLE_H

#include <stdio.h>

#include "kvway/err.h"
#include "kvway/slice.h"

/* json: what GET /workers answers, or a single worker.
 * KVW_EPROTO: it is not that; nothing was printed. */
enum kvw_err kvw_workers_table_print(struct kvw_slice json, FILE *out) KVW_MUST_CHECK;

/* The message of an error of the admin address; the text itself if it is none. */
void kvw_workers_error_print(long status, struct kvw_slice json, FILE *err);

#endif
