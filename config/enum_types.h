/*
 * enum_types.h - a type for each enum of enums.def, named kvw_type_ENUM_<name>.
 */
#ifndef KVW_CONFIG_ENUM_TYPES_H
#define KVW_CONFIG_ENUM_TYPES_H

#include "settings/types.h"

#define KVW_ENUM(name) extern const struct kvw_type kvw_type_ENUM_##name;
#define KVW_ENUM_WORD(word, value)
#define KVW_ENUM_END
#include "config/enums.def"

#endif
