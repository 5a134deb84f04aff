/*
 * admin_json.h - reads members of a router's answers, which may be missing or of another type.
 */
#ifndef KVW_ADMIN_JSON_H
#define KVW_ADMIN_JSON_H

#include <jansson.h>

/* Returns a member's text, "" if it has none; borrowed from the object. */
static inline const char *kvw_json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text != NULL ? text : "";
}

/* Returns a member's number, 0 if it has none. */
static inline double kvw_json_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

#endif
