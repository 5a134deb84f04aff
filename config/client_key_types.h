/*
 * client_key_types.h - types that only entries of `auth.keys_file` have.
 */
#ifndef KVW_CONFIG_CLIENT_KEY_TYPES_H
#define KVW_CONFIG_CLIENT_KEY_TYPES_H

#include "settings/types.h"

/* struct kvw_digest, int64_t (seconds since 1970; the empty text is 0) */
extern const struct kvw_type kvw_type_DIGEST, kvw_type_DATE;

#endif
