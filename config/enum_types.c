/*
 * enum_types.c - the types for enums.def: which words a key may have, and the values of these
 * words.
 */
#include "config/enum_types.h"

#include "base/log.h"
#include "config/config.h"

/* for each enum: the list of its words, then its type */
/* clang-format off */
#define KVW_ENUM(name)              static const struct kvw_word words_of_##name[] = {
#define KVW_ENUM_WORD(word, number) {word, number},
#define KVW_ENUM_END                {NULL, 0}};
/* clang-format on */
#include "config/enums.def"

#define KVW_ENUM(enum_name)                                                                        \
	const struct kvw_type kvw_type_ENUM_##enum_name = {                                        \
		.name = "one of",                                                                  \
		.words = words_of_##enum_name,                                                     \
		.size = sizeof(int),                                                               \
		.parse = kvw_word_parse,                                                           \
		.print = kvw_word_print,                                                           \
	};
#define KVW_ENUM_WORD(word, number)
#define KVW_ENUM_END
#include "config/enums.def"

_Static_assert(
	sizeof(enum kvw_half_close) == sizeof(int) && sizeof(enum kvw_forwarded) == sizeof(int) &&
		sizeof(enum kvw_tls_version) == sizeof(int) &&
		sizeof(enum kvw_client_certificate) == sizeof(int) &&
		sizeof(enum kvw_proxy_protocol) == sizeof(int) &&
		sizeof(enum kvw_group_sticky) == sizeof(int) && sizeof(enum kvw_role) == sizeof(int) &&
		sizeof(enum kvw_pd_transfer) == sizeof(int) &&
		sizeof(enum kvw_group_fallback) == sizeof(int) &&
		sizeof(enum kvw_otlp_protocol) == sizeof(int) &&
		sizeof(enum kvw_otlp_compression) == sizeof(int) &&
		sizeof(enum kvw_decision_headers) == sizeof(int),
	"an enum's word is copied as an int");
