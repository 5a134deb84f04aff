/*
 * unknown.h - reports an unknown key, with a suggestion.
 *
 * Paths are dotted, "section.key"; a name is a path's last part, as it is written in its section.
 * For every configuration that is a tree of sections (the router's, the cache's). Pure functions.
 */
#ifndef KVW_CONFIG_UNKNOWN_H
#define KVW_CONFIG_UNKNOWN_H

#include "settings/document.h"
#include "settings/key.h"
#include "settings/report.h"

/* Reports `key`, at `path`, which `section` does not have: with the nearest known name, in this
 * section or elsewhere, or with all names of this section. */
void kvw_report_unknown(struct kvw_report *report, const struct kvw_schema *schema,
	const char *section, const char *path, const struct kvw_node *key);

#endif
