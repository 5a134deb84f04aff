/*
 * openapi.h - the text of openapi.json, without its spaces: the answer to GET /openapi.json.
 * Private to src/router/admin.
 */
#ifndef KVW_ADMIN_OPENAPI_H
#define KVW_ADMIN_OPENAPI_H

#include <stddef.h>

extern const char kvw_openapi[]; /* kvw_openapi_len bytes; no NUL behind them */
extern const size_t kvw_openapi_len;

#endif
