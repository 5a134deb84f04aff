/*
 * pages.h - the coordinator's answers as JSON, in the form of LMCache 0.5.6's own.
 *
 * Each function appends to a page; page->failed: memory ran out.
 */
#ifndef KVW_COORDINATOR_PAGES_H
#define KVW_COORDINATOR_PAGES_H

#include "base/page.h"
#include "feeds/coordinator/directory.h"

/* Appends a format in which ' stands for ". Its arguments: %s, %S: a text or a struct kvw_slice, as
 * a JSON string; %d, %u: an unsigned or a uint64_t; %f: a double, with all digits; %b: an int, as a
 * truth value; %r: a text as it is. */
void kvw_cd_put(struct kvw_page *page, const char *format, ...);

/* GET /instances */
void kvw_cd_page_instances(struct kvw_page *page, const struct kvw_cd *cd);

/* GET /instances/usage: every server and the shared pools. */
void kvw_cd_page_usage(struct kvw_page *page, const struct kvw_cd *cd);
/* GET /instances/ID/usage. False, and nothing is written: the instance is unknown, or nothing is
 * known of it. */
bool kvw_cd_page_usage_of(
	struct kvw_page *page, const struct kvw_cd *cd, struct kvw_slice id) KVW_MUST_CHECK;

/* A key in the form of LMCache's EncodedObjectKey. */
void kvw_cd_page_key(struct kvw_page *page, const struct kvw_ce_key *key);

/* Bytes of an answer with keys; a longer one is cut off, and is to be refused. */
#define KVW_CD_PAGE_MOST ((size_t)64 << 20)

/* Filter of GET /directory/keys. */
struct kvw_cd_filter {
	bool any_tier;
	enum kvw_ce_tier tier;
	struct kvw_slice instance, backend; /* len 0: any */
	uint64_t offset, limit;
};
void kvw_cd_page_keys(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_cd_filter *filter);

/* One result of POST /directory/lookup; the directory may not know the key. */
void kvw_cd_page_result(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_ce_key *key);

/* GET /quota and GET /quota/SALT: usage of one tier, and quotas, which are of L2. */
void kvw_cd_page_quotas(struct kvw_page *page, const struct kvw_cd *cd, enum kvw_ce_tier tier);
void kvw_cd_page_quota(struct kvw_page *page, const struct kvw_cd *cd, struct kvw_slice salt,
	enum kvw_ce_tier tier);

/* Filter of GET /cache/pins. */
struct kvw_cd_pin_filter {
	struct kvw_slice salt, model; /* len 0: any */
	uint64_t offset, limit;
};
void kvw_cd_page_pins(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_cd_pin_filter *filter);

/* GET /directory/stats */
void kvw_cd_page_stats(struct kvw_page *page, const struct kvw_cd *cd);
/* GET /metrics, as Prometheus reads it */
void kvw_cd_page_metrics(struct kvw_page *page, const struct kvw_cd *cd);

#endif
