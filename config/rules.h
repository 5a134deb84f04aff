/*
 * rules.h - checks rules between keys, in addition to the type and range of each.
 */
#ifndef KVW_CONFIG_RULES_H
#define KVW_CONFIG_RULES_H

#include "config/build.h"

/* Checks the whole configuration. Considers only keys whose values are valid. */
void kvw_rules_check(struct kvw_build *build);

/* These check certificates, keys and authorities, and open their files. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_rules_check_tls(struct kvw_build *build) KVW_MUST_CHECK;
void kvw_rules_check_worker_tls(struct kvw_report *report, const struct kvw_worker_config *worker,
	size_t index, struct kvw_place place);

/* Checks discovery.*. */
void kvw_rules_check_discovery(struct kvw_build *build);

/* Checks discovery.kubernetes.pools. */
void kvw_rules_check_pools(struct kvw_build *build);

/* Checks admission.* and service_levels. */
void kvw_rules_check_admission(struct kvw_build *build);

/* Checks auth.jwt. Its files are opened by kvw_rules_check_tls. */
void kvw_rules_check_auth(struct kvw_build *build);

/* Checks expose.paths and admin.open. */
void kvw_rules_check_paths(struct kvw_build *build);

/* Checks admin.* and proxies.*. */
void kvw_rules_check_admin(struct kvw_build *build);
void kvw_rules_check_proxies(struct kvw_build *build);

/* Checks tracing.*. */
void kvw_rules_check_tracing(struct kvw_build *build);

/* Checks kvaware.*. */
void kvw_rules_check_kvaware(struct kvw_build *build);
void kvw_rules_check_worker_events(struct kvw_report *report,
	const struct kvw_worker_config *worker, size_t index, struct kvw_place place);

/* Checks the newest worker against those before it. */
void kvw_rules_check_worker(
	struct kvw_report *report, const struct kvw_config *config, struct kvw_place url_place);

/* A worker without a URL. */
void kvw_rules_missing_url(struct kvw_report *report, size_t index, struct kvw_place place);

#endif
