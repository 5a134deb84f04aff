/*
 * client_key_types.h - types of keys that only entries of `auth.keys_file` have.
 */
#ifndef KVW_CONFIG_CLIENT_KEY_TYPES_H
#define KVW_CONFIG_CLIENT_KEY_TYPES_H

#include "settings/types.h"

/* values are struct kvw_digest, and int64_t (seconds since 1970; 0 for the empty text) */
extern const struct kvw_type kvw_type_DIGEST, kvw_type_DATE;

#endif
