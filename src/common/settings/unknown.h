/*
 * unknown.h - an unknown key: what it may have been meant to be.
 *
 * Paths are dotted, "section.key"; a name is a path's last part, as it stands in its section. Serves
 * every configuration that is a tree of sections (the router's, the cache's). Pure functions.
 */
#ifndef KVW_CONFIG_UNKNOWN_H
#define KVW_CONFIG_UNKNOWN_H

#include <stddef.h>

#include "settings/document.h"
#include "settings/report.h"

/* All paths of one configuration; borrowed. */
struct kvw_known {
	const char *const *keys;
	size_t key_count;
	const char *const *sections; /* and what else may stand where a section may */
	size_t section_count;
};

/* The name of a path directly below a section ("" is the top); NULL: it is not there. */
const char *kvw_name_in(const char *section, const char *path);

/* Reports `key`, at `path`, which `section` does not have: with the known name nearest to it, here
 * or elsewhere, or with those that may stand here. */
void kvw_report_unknown(struct kvw_report *report, const struct kvw_known *known,
	const char *section, const char *path, const struct kvw_node *key);

#endif
